package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Cassandra's native protocol, version 4, as far as lookups and a load take it.
// Source: https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v4.spec

const (
	cqlError   = 0x00
	cqlStartup = 0x01
	cqlQuery   = 0x07
	cqlPrepare = 0x09
	cqlExecute = 0x0A
	cqlBatch   = 0x0D

	consistencyOne = 1
	withValues     = 0x01
	skipMetadata   = 0x02

	resultRows     = 2
	resultPrepared = 4
	headBytes      = 9
	unlogged       = 1
)

var cqlSchema = []string{
	"CREATE KEYSPACE benchmark WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
	"CREATE TABLE benchmark.profiles (app_id int, user_id text, key text, value text, updated_at timestamp, " +
		"PRIMARY KEY ((app_id, user_id), key))",
}

const cqlLookup = "SELECT * FROM benchmark.profiles WHERE app_id = ? AND user_id = ?"
const cqlInsert = "INSERT INTO benchmark.profiles (app_id, user_id, key, value, updated_at) VALUES (?, ?, ?, ?, ?)"

type cassandra struct {
	connection net.Conn
	reader     *bufio.Reader
	request    []byte
}

func openCassandra(address string) (*cassandra, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &cassandra{connection: connection, reader: bufio.NewReaderSize(connection, bufferBytes)}
	start := cqlString(cqlString(binary.BigEndian.AppendUint16(nil, 1), "CQL_VERSION"), "3.0.0")
	_, err = server.ask(cqlStartup, start)
	return server, err
}

// prepared gives a connection and the id of the statement.
func prepared(address, statement string) (*cassandra, []byte, error) {
	server, err := openCassandra(address)
	if err != nil {
		return nil, nil, err
	}
	found, err := server.ask(cqlPrepare, cqlBytes(nil, statement))
	if err != nil {
		return nil, nil, err
	}
	if binary.BigEndian.Uint32(found) != resultPrepared {
		return nil, nil, errors.New("not prepared")
	}
	length := binary.BigEndian.Uint16(found[4:])
	return server, append([]byte(nil), found[4:6+length]...), nil
}

// cassandraLookup asks for the rows of an entity, of which there is one at least.
func cassandraLookup(address string) (lookup, error) {
	server, id, err := prepared(address, cqlLookup)
	if err != nil {
		return nil, err
	}
	var body []byte
	return func(entity string) error {
		app, user, _ := strings.Cut(entity, "\t")
		body = binary.BigEndian.AppendUint16(append(body[:0], id...), consistencyOne)
		body = binary.BigEndian.AppendUint16(append(body, withValues|skipMetadata), 2)
		if body, err = cqlInt(body, app); err != nil {
			return err
		}
		body = cqlBytes(body, user)
		found, err := server.ask(cqlExecute, body)
		if err != nil {
			return err
		}
		// Kind, flags, columns and, as there are no more pages, rows.
		if binary.BigEndian.Uint32(found) != resultRows || binary.BigEndian.Uint32(found[12:]) == 0 {
			return fmt.Errorf("no row of %q", entity)
		}
		return nil
	}, nil
}

// fillCassandra makes the table and inserts rows, one a line, the columns between tabs; those of a partition that follow each other
// as one batch, as a driver would.
func fillCassandra(address string, connections int) error {
	server, err := openCassandra(address)
	if err != nil {
		return err
	}
	for _, statement := range cqlSchema {
		body := append(binary.BigEndian.AppendUint16(cqlBytes(nil, statement), consistencyOne), 0)
		if _, err = server.ask(cqlQuery, body); err != nil {
			return err
		}
	}
	batches, failures := make(chan [][]string, connections), make([]error, connections)
	var running sync.WaitGroup
	for number := range connections {
		running.Add(1)
		go func() {
			defer running.Done()
			server, id, err := prepared(address, cqlInsert)
			for rows := range batches {
				if err == nil {
					err = server.insert(id, rows)
				}
			}
			failures[number] = err
		}()
	}
	var batch [][]string
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		row := strings.Split(scanner.Text(), "\t")
		if len(batch) > 0 && (batch[0][0] != row[0] || batch[0][1] != row[1]) {
			batches <- batch
			batch = nil
		}
		batch = append(batch, row)
	}
	if len(batch) > 0 {
		batches <- batch
	}
	close(batches)
	running.Wait()
	return errors.Join(append(failures, scanner.Err())...)
}

func (server *cassandra) insert(id []byte, rows [][]string) error {
	body := binary.BigEndian.AppendUint16([]byte{unlogged}, uint16(len(rows)))
	for _, row := range rows {
		body = append(append(body, 1), id...)
		body = binary.BigEndian.AppendUint16(body, uint16(len(row)))
		var err error
		if body, err = cqlInt(body, row[0]); err != nil {
			return err
		}
		body = cqlBytes(cqlBytes(cqlBytes(body, row[1]), row[2]), row[3])
		milliseconds, err := strconv.ParseInt(row[4], 10, 64)
		if err != nil {
			return err
		}
		body = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(body, 8), uint64(milliseconds))
	}
	body = append(binary.BigEndian.AppendUint16(body, consistencyOne), 0)
	_, err := server.ask(cqlBatch, body)
	return err
}

// ask sends a request and gives the body of what is answered, which is valid until the next one.
func (server *cassandra) ask(opcode byte, body []byte) ([]byte, error) {
	server.request = append(server.request[:0], 4, 0, 0, 0, opcode)
	server.request = append(binary.BigEndian.AppendUint32(server.request, uint32(len(body))), body...)
	if _, err := server.connection.Write(server.request); err != nil {
		return nil, err
	}
	var head [headBytes]byte
	if _, err := io.ReadFull(server.reader, head[:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(head[5:]))
	if cap(server.request) < length {
		server.request = make([]byte, length)
	}
	found := server.request[:length]
	if _, err := io.ReadFull(server.reader, found); err != nil {
		return nil, err
	}
	if head[4] == cqlError {
		return nil, fmt.Errorf("answered %q", found)
	}
	return found, nil
}

func cqlString(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(text))), text...)
}

func cqlBytes(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(text))), text...)
}

func cqlInt(to []byte, number string) ([]byte, error) {
	value, err := strconv.Atoi(number)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(to, 4), uint32(value)), err
}
