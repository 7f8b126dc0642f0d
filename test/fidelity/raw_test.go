package fidelity

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// conn is a connection to a broker. drain, ask and the methods that call them record the commands that it receives.
type conn struct {
	*script
	name   string
	net    net.Conn
	write  sync.Mutex
	in     chan arrival
	held   []arrival // commands that came while another one was awaited
	nextID uint64
	seq    uint64
}

type arrival struct {
	name string
	cmd  protoreflect.Message // nil if the connection was closed
	data []byte
}

func (s *script) dial(name string) *conn {
	u, err := url.Parse(s.url)
	require.NoError(s.t, err)
	nc, err := net.Dial("tcp", u.Host)
	require.NoError(s.t, err)
	c := &conn{script: s, name: name, net: nc, in: make(chan arrival, 10_000)}
	s.t.Cleanup(func() { _ = nc.Close() })
	go c.read()
	c.send(`connect { client_version: "fidelity" protocol_version: 20 }`)
	require.Equal(s.t, "CONNECTED", c.await(nil).name)
	s.open = append(s.open, c)
	return c
}

func (c *conn) read() {
	defer close(c.in)
	head := make([]byte, 8)
	for {
		if _, err := io.ReadFull(c.net, head); err != nil {
			return
		}
		total, size := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		rest := make([]byte, total-4)
		if _, err := io.ReadFull(c.net, rest); err != nil {
			return
		}
		base := parse("BaseCommand")
		if err := proto.Unmarshal(rest[:size], base); err != nil {
			c.note("%s < not a command: %v", c.name, err)
			return
		}
		name, m := body(base)
		if name == "PING" { // without a pong the broker closes the connection
			c.send(`pong {}`)
			continue
		}
		c.in <- arrival{name, m, rest[size:]}
	}
}

// send sends a command in the text form of BaseCommand. If a request has no request_id, send adds a new one. It returns
// the request_id.
func (c *conn) send(text string, more ...string) uint64 {
	return c.sendData(nil, text, more...)
}

func (c *conn) sendData(data []byte, text string, more ...string) (request uint64) {
	base := parse("BaseCommand", append([]string{text}, more...)...)
	name, m := body(base)
	types := field(base, "type")
	base.Set(types, protoreflect.ValueOfEnum(types.Enum().Values().ByName(protoreflect.Name(name)).Number()))
	if f := field(m, "request_id"); f != nil && f.Cardinality() == protoreflect.Required && !m.Has(f) {
		m.Set(f, protoreflect.ValueOfUint64(c.nextRequest()))
	}
	cmd, err := proto.MarshalOptions{Deterministic: true}.Marshal(base)
	require.NoError(c.t, err)
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(cmd)+len(data)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(cmd)))
	c.write.Lock()
	defer c.write.Unlock()
	_, _ = c.net.Write(append(append(frame, cmd...), data...))
	return number(m, "request_id")
}

func (c *conn) nextRequest() uint64 {
	c.nextID++
	return c.nextID
}

// await returns the next wanted command, and puts others into held. If wanted is nil, it returns any command.
func (c *conn) await(wanted func(arrival) bool) arrival {
	deadline := time.After(10 * time.Second)
	for {
		select {
		case a, ok := <-c.in:
			switch {
			case !ok:
				return arrival{name: "connection closed"}
			case wanted == nil || wanted(a):
				return a
			default:
				c.held = append(c.held, a)
			}
		case <-deadline:
			return arrival{name: "no answer"}
		}
	}
}

// ask sends a request and records its answer, or that no answer came.
func (c *conn) ask(text string, more ...string) arrival {
	a := c.call(text, more...)
	c.note("%s < %s", c.name, c.describe(a))
	return a
}

// call is ask without a record. If the topic is not loaded, call looks the topic up, as clients do, and repeats the
// request.
func (c *conn) call(text string, more ...string) arrival {
	for range 50 {
		request := c.send(text, more...)
		a := c.await(func(a arrival) bool {
			return field(a.cmd, "request_id") != nil && number(a.cmd, "request_id") == request
		})
		if a.name != "ERROR" || c.describe(a) != "ERROR error=ServiceNotReady" {
			return a
		}
		c.send(fmt.Sprintf(`lookupTopic { topic: %q }`, c.topic))
		if looked := c.await(func(a arrival) bool { return a.name == "LOOKUP_RESPONSE" }); looked.cmd == nil {
			return looked
		}
		time.Sleep(50 * time.Millisecond)
	}
	return arrival{name: "still not ready"}
}

// fence waits until the broker has handled all commands that were sent before.
func (c *conn) fence() {
	c.send(`ping {}`)
	c.await(func(a arrival) bool { return a.name == "PONG" })
}

// drain records the commands that come until a pause: first the messages, in order for each consumer, then the other
// commands in order. It returns the ids of the messages.
func (c *conn) drain() []messageID {
	for range 2 { // twice, since a command on one connection may cause an event on another
		for _, other := range c.open {
			other.fence()
		}
	}
	messages := map[uint64][]string{}
	var others []string
	var ids []messageID
	take := func(a arrival) {
		switch a.name {
		case "MESSAGE":
			ids = append(ids, readID(a.cmd.Get(field(a.cmd, "message_id")).Message()))
			consumer := number(a.cmd, "consumer_id")
			messages[consumer] = append(messages[consumer], c.describe(a))
		default:
			others = append(others, c.describe(a))
		}
	}
	for _, a := range c.held {
		take(a)
	}
	c.held = nil
	for open := true; open; {
		select {
		case a, ok := <-c.in:
			if ok {
				take(a)
			} else {
				others = append(others, "connection closed")
				open = false
			}
		case <-time.After(c.quiet):
			open = false
		}
	}
	var lines []string
	for _, consumer := range slices.Sorted(maps.Keys(messages)) {
		lines = append(lines, messages[consumer]...)
	}
	lines = append(lines, others...)
	if len(lines) == 0 {
		lines = []string{"nothing"}
	}
	for _, line := range lines {
		c.note("%s < %s", c.name, line)
	}
	return ids
}

// describe returns a line for a command, with the payload of a message.
func (c *conn) describe(a arrival) string {
	if a.cmd == nil {
		return a.name
	}
	line := strings.TrimSpace(a.name + " " + c.render(a.cmd))
	if a.name != "MESSAGE" {
		return line
	}
	metadata, payload, err := split(a.data)
	if err != nil {
		return line + ": " + err.Error()
	}
	if metadata.Has(field(metadata, "num_messages_in_batch")) {
		return fmt.Sprintf("%s batch of %d", line, number(metadata, "num_messages_in_batch"))
	}
	return fmt.Sprintf("%s %.40q", line, payload)
}

// close ends the connection like a crash of the client.
func (c *conn) close() {
	c.script.open = slices.DeleteFunc(c.script.open, func(o *conn) bool { return o == c })
	_ = c.net.Close()
	time.Sleep(c.quiet) // until the broker has noticed that
}
