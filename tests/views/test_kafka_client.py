"""librdkafka's security settings in Java's words."""

from __future__ import annotations

import pytest

from thermocline.settings import KafkaSettings
from thermocline.views.kafka_client import READING, client_properties
from thermocline.views.properties import Translation, rendered


def translated(**client: str) -> Translation:
    names = {name.replace("_", "."): value for name, value in client.items()}
    return client_properties(KafkaSettings(bootstrap_servers="b:9092", client=names), "kafka")  # type: ignore[arg-type]


def security(**client: str) -> dict[str, str]:
    return {name: value for name, value in translated(**client).plain.items() if name not in READING}


def test_without_security_only_how_to_read_is_said() -> None:
    assert translated().plain == READING
    assert READING["isolation.level"] == "read_committed"


def test_sasl_names_its_login_module_and_the_variable_of_its_password() -> None:
    found = translated(
        security_protocol="sasl_ssl",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username='a"b\\',
        sasl_password='p"',
    )
    assert found.plain["security.protocol"] == "SASL_SSL"
    assert found.plain["sasl.mechanism"] == "SCRAM-SHA-512"
    assert found.plain["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        r'username="a\"b\\" password="${env:TRINO_KAFKA_SASL_PASSWORD}";'
    )
    assert found.secrets == {"TRINO_KAFKA_SASL_PASSWORD": r"p\""}
    assert found.plain["config.providers"] == "env"
    assert not found.left_out


def test_a_mechanism_that_needs_more_is_said_to_be_missing() -> None:
    found = translated(sasl_mechanisms="OAUTHBEARER", sasl_oauthbearer_client_secret="s")
    assert found.plain["sasl.mechanism"] == "OAUTHBEARER"
    assert set(found.left_out) == {"sasl.mechanism", "sasl.oauthbearer.client.secret"}
    assert "sasl.jaas.config" not in found.plain


def test_authorities_and_one_file_of_key_and_certificate_are_pem() -> None:
    assert security(
        ssl_ca_location="/ca.pem",
        ssl_certificate_location="/me.pem",
        ssl_key_location="/me.pem",
        ssl_endpoint_identification_algorithm="none",
    ) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
    }


def test_key_and_certificate_in_two_files_are_not_taken() -> None:
    found = translated(ssl_certificate_location="/cert.pem", ssl_key_location="/key.pem")
    assert set(found.left_out) == {"ssl.certificate.location", "ssl.key.location"}
    assert "ssl.keystore.location" not in found.plain


def test_a_keystore_is_pkcs12_and_its_passwords_are_variables() -> None:
    found = translated(ssl_keystore_location="/me.p12", ssl_keystore_password="a", ssl_key_password="b")
    assert found.plain["ssl.keystore.type"] == "PKCS12"
    assert found.secrets == {"TRINO_KAFKA_SSL_KEYSTORE_PASSWORD": "a", "TRINO_KAFKA_SSL_KEY_PASSWORD": "b"}


@pytest.mark.parametrize("name", ["statistics_interval_ms", "enable_ssl_certificate_verification"])
def test_what_java_has_no_word_for_is_told(name: str) -> None:
    assert set(translated(**{name: "1"}).left_out) == {name.replace("_", ".")}


def test_properties_are_written_as_java_reads_them() -> None:
    assert rendered({"a": " b\\c\nd", "e": "ü😀"}) == "a=\\ b\\\\c\\nd\ne=\\u00fc\\ud83d\\ude00\n"
