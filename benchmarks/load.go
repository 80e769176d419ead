// Load for benchmarks/lookup.py: lookups of entities over connections that are kept, one at a time on each.
//
// A compiled client, so that the client takes as little of the cores that it shares with the server as it can.
// It asks HTTP, or PostgreSQL or Cassandra by a prepared statement, all as plainly as their protocols allow.
// PostgreSQL also by a statement that is sent with each lookup, as by drivers that don't prepare it:
//
//	load http     ADDRESS CONNECTIONS SECONDS < one path a line
//	load overload ADDRESS CONNECTIONS SECONDS RATE < one path a line
//	load postgres ADDRESS CONNECTIONS SECONDS SQL < one entity's parameters a line, between tabs
//	load unprepared ADDRESS CONNECTIONS SECONDS SQL < the same
//	load cassandra ADDRESS CONNECTIONS SECONDS < the same
//	load fill-cassandra ADDRESS CONNECTIONS < one row a line, the columns between tabs
//
// It prints one line of JSON: how many lookups, their median and 99th percentile in milliseconds. With a rate,
// the connections together ask so often in a second, where answers come as fast, and answers of 429 and 503
// are counted by themselves.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Larger than any answer here.
const bufferBytes = 1 << 16

// A connection that has been opened: asks for one entity and reads the whole answer.
type lookup func(entity string) error

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 3 {
		return errors.New("too few arguments")
	}
	connections, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	if arguments[0] == "fill-cassandra" {
		return fillCassandra(arguments[1], connections)
	}
	seconds, err := strconv.ParseFloat(arguments[3], 64)
	if err != nil {
		return err
	}
	entities, err := lines(os.Stdin)
	if err != nil {
		return err
	}
	open := func() (lookup, error) { return openHTTP(arguments[1]) }
	switch arguments[0] {
	case "postgres":
		open = func() (lookup, error) { return openPostgres(arguments[1], arguments[4], true) }
	case "unprepared":
		open = func() (lookup, error) { return openPostgres(arguments[1], arguments[4], false) }
	case "cassandra":
		open = func() (lookup, error) { return cassandraLookup(arguments[1]) }
	}
	pause := time.Duration(0)
	if arguments[0] == "overload" {
		rate, err := strconv.ParseFloat(arguments[4], 64)
		if err != nil {
			return err
		}
		pause = time.Duration(float64(connections) / rate * float64(time.Second))
	}
	length := time.Duration(seconds * float64(time.Second))
	latencies, refused, err := drive(open, entities, connections, length, pause)
	if err != nil {
		return err
	}
	figures := summary(latencies, seconds)
	if pause > 0 {
		figures["refused"] = float64(refused)
	}
	return json.NewEncoder(os.Stdout).Encode(figures)
}

func lines(source io.Reader) ([]string, error) {
	var all []string
	scanner := bufio.NewScanner(source)
	for scanner.Scan() {
		all = append(all, scanner.Text())
	}
	if len(all) == 0 {
		return nil, errors.New("no entities to ask for")
	}
	return all, scanner.Err()
}

// drive asks over all connections until time is up; each begins at another place of the entities. With a pause,
// a connection begins a lookup no sooner than that after the one before, and counts those that are refused.
func drive(open func() (lookup, error), entities []string, connections int, length, pause time.Duration) ([]time.Duration, int, error) {
	opened := make([]lookup, connections)
	for number := range opened {
		var err error
		if opened[number], err = open(); err != nil {
			return nil, 0, err
		}
	}
	latencies, failures := make([][]time.Duration, connections), make([]error, connections)
	refused := make([]int, connections)
	var running sync.WaitGroup
	end := time.Now().Add(length)
	for number, ask := range opened {
		running.Add(1)
		go func() {
			defer running.Done()
			place := number * len(entities) / connections
			time.Sleep(pause * time.Duration(number) / time.Duration(connections))
			for began := time.Now(); began.Before(end); place++ {
				err := ask(entities[place%len(entities)])
				now := time.Now()
				switch {
				case err == nil:
					latencies[number] = append(latencies[number], now.Sub(began))
				case pause > 0 && errors.Is(err, errRefused):
					refused[number]++
				default:
					failures[number] = err
					return
				}
				time.Sleep(pause - now.Sub(began))
				began = time.Now()
			}
		}()
	}
	running.Wait()
	all := 0
	for _, count := range refused {
		all += count
	}
	return slices.Concat(latencies...), all, errors.Join(failures...)
}

func summary(latencies []time.Duration, seconds float64) map[string]float64 {
	slices.Sort(latencies)
	if len(latencies) == 0 {
		return map[string]float64{"lookups": 0, "per_second": 0}
	}
	at := func(share float64) float64 {
		place := min(int(share*float64(len(latencies))), len(latencies)-1)
		return float64(latencies[place].Microseconds()) / 1000
	}
	return map[string]float64{
		"lookups":    float64(len(latencies)),
		"per_second": float64(int(float64(len(latencies)) / seconds)),
		"p50_ms":     at(0.5),
		"p99_ms":     at(0.99),
	}
}

// dial connects, over TLS where LOAD_CA names the CA of the server. LOAD_CERTIFICATE is what is shown to it.
func dial(address string) (net.Conn, error) {
	ca := os.Getenv("LOAD_CA")
	if ca == "" {
		return net.Dial("tcp", address)
	}
	content, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(content)
	if shown := os.Getenv("LOAD_CERTIFICATE"); shown != "" {
		pair, err := tls.LoadX509KeyPair(shown, os.Getenv("LOAD_CERTIFICATE_KEY"))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return tls.Dial("tcp", address, config)
}

func openHTTP(address string) (lookup, error) {
	connection, err := dial(address)
	if err != nil {
		return nil, err
	}
	reader, request := bufio.NewReaderSize(connection, bufferBytes), []byte(nil)
	head := "\r\nUser-Agent: load\r\n"
	if said := os.Getenv("LOAD_AUTHORIZATION"); said != "" {
		head += "Authorization: " + said + "\r\n"
	}
	return func(path string) error {
		request = append(append(append(request[:0], "GET "...), path...), " HTTP/1.1\r\nHost: "...)
		request = append(append(append(request, address...), head...), "\r\n"...)
		if _, err := connection.Write(request); err != nil {
			return err
		}
		return readHTTP(reader)
	}, nil
}

var okay, lengthIs = []byte("HTTP/1.1 200 "), []byte("content-length: ")
var busy = [][]byte{[]byte("HTTP/1.1 429 "), []byte("HTTP/1.1 503 ")}

// The server has too much to do; the connection goes on.
var errRefused = errors.New("refused")

func readHTTP(reader *bufio.Reader) error {
	status, err := reader.ReadSlice('\n')
	if err != nil {
		return err
	}
	refused := bytes.HasPrefix(status, busy[0]) || bytes.HasPrefix(status, busy[1])
	if !refused && !bytes.HasPrefix(status, okay) {
		return fmt.Errorf("answered %q", status)
	}
	length := -1
	for {
		line, err := reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, is := bytes.CutPrefix(line, lengthIs); is {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("an answer without its length")
	}
	if refused {
		body := make([]byte, length)
		if _, err = io.ReadFull(reader, body); err != nil {
			return err
		}
		return fmt.Errorf("%w: %s", errRefused, body)
	}
	_, err = reader.Discard(length)
	return err
}

// openPostgres speaks PostgreSQL's protocol, version 3, to a server that trusts everybody on this machine.
// Source: https://www.postgresql.org/docs/current/protocol-message-formats.html
func openPostgres(address, statement string, prepares bool) (lookup, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(connection, bufferBytes)
	start := binary.BigEndian.AppendUint32(nil, 3<<16)
	start = append(start, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	if _, err = connection.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(start)+4)), start...)); err != nil {
		return nil, err
	}
	if _, err = readUntilReady(reader); err != nil {
		return nil, err
	}
	name := ""
	if prepares {
		name = "lookup"
	}
	parse := message(nil, 'P', []byte(name+"\x00"+statement+"\x00\x00\x00"))
	if prepares {
		if _, err = connection.Write(message(parse, 'S', nil)); err != nil {
			return nil, err
		}
		if _, err = readUntilReady(reader); err != nil {
			return nil, err
		}
		parse = nil
	}
	var body, request []byte
	return func(entity string) error {
		body = bind(body[:0], name, strings.Split(entity, "\t"))
		request = message(append(request[:0], parse...), 'B', body)
		request = message(request, 'E', []byte("\x00\x00\x00\x00\x00"))
		if _, err := connection.Write(message(request, 'S', nil)); err != nil {
			return err
		}
		rows, err := readUntilReady(reader)
		if err == nil && rows == 0 {
			err = fmt.Errorf("no row of %q", entity)
		}
		return err
	}, nil
}

func message(to []byte, kind byte, body []byte) []byte {
	to = binary.BigEndian.AppendUint32(append(to, kind), uint32(len(body)+4))
	return append(to, body...)
}

// bind gives the body of a Bind message: parameters and results as text.
func bind(to []byte, statement string, parameters []string) []byte {
	to = append(append(to, '\x00'), statement...)
	to = append(to, "\x00\x00\x00"...)
	to = binary.BigEndian.AppendUint16(to, uint16(len(parameters)))
	for _, parameter := range parameters {
		to = append(binary.BigEndian.AppendUint32(to, uint32(len(parameter))), parameter...)
	}
	return append(to, 0, 0)
}

// readUntilReady gives the number of rows that came before the server was ready for the next request.
func readUntilReady(reader *bufio.Reader) (int, error) {
	rows := 0
	for {
		head, err := reader.Peek(5)
		if err != nil {
			return rows, err
		}
		kind, length := head[0], int(binary.BigEndian.Uint32(head[1:]))
		if kind == 'E' {
			text, _ := reader.Peek(length + 1)
			return rows, fmt.Errorf("answered %q", text)
		}
		if _, err = reader.Discard(length + 1); err != nil {
			return rows, err
		}
		switch kind {
		case 'D':
			rows++
		case 'Z':
			return rows, nil
		}
	}
}
