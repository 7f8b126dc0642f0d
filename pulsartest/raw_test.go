package pulsartest

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
	"github.com/stretchr/testify/require"
)

// raw is one connection.
type raw struct {
	*script
	name   string
	conn   net.Conn
	in     chan arrival
	held   []arrival // came while something else was awaited
	nextID uint64
	seq    uint64
}

type arrival struct {
	cmd  wire.Command
	data []byte
}

func (s *script) dial(name string) *raw {
	u, err := url.Parse(s.url)
	require.NoError(s.t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(s.t, err)
	r := &raw{script: s, name: name, conn: conn, in: make(chan arrival, 10_000)}
	s.t.Cleanup(func() { _ = conn.Close() })
	go func() {
		defer close(r.in)
		reader := wire.NewReader(conn, 10<<20)
		for {
			cmd, data, err := reader.Read()
			if err != nil {
				return
			}
			r.in <- arrival{cmd, data}
		}
	}()
	r.send(&wire.Connect{ClientVersion: "raw", ProtocolVersion: 20}, nil)
	a, ok := r.await()
	require.True(s.t, ok)
	require.IsType(s.t, &wire.Connected{}, a.cmd)
	s.open = append(s.open, r)
	return r
}

func (r *raw) send(cmd wire.Command, data []byte) {
	frame := append(wire.AppendFrame(nil, cmd, len(data)), data...)
	_, _ = r.conn.Write(frame)
}

// await returns the next command that is not a PING.
func (r *raw) await() (arrival, bool) {
	deadline := time.After(5 * time.Second)
	for {
		select {
		case a, ok := <-r.in:
			if _, ping := a.cmd.(*wire.Ping); ping {
				r.send(&wire.Pong{}, nil)
				continue
			}
			return a, ok
		case <-deadline:
			return arrival{}, false
		}
	}
}

func (r *raw) request() uint64 {
	r.nextID++
	return r.nextID
}

// fence returns when the broker has handled all that was sent before.
func (r *raw) fence() {
	r.send(&wire.Ping{}, nil)
	for {
		a, ok := r.await()
		if _, pong := a.cmd.(*wire.Pong); !ok || pong {
			return
		}
		r.held = append(r.held, a)
	}
}

// drain writes down all that comes until it is quiet: first the messages of
// each consumer in their order, then the rest in its own.
func (r *raw) drain() []wire.MessageID {
	for _, c := range r.open {
		c.fence()
	}
	messages := map[uint64][]string{}
	var others []string
	var ids []wire.MessageID
	take := func(a arrival) {
		switch m := a.cmd.(type) {
		case *wire.Ping:
			r.send(&wire.Pong{}, nil)
		case *wire.Message:
			ids = append(ids, m.ID)
			messages[m.Consumer] = append(messages[m.Consumer], r.describe(m, a.data))
		default:
			others = append(others, r.answer(a.cmd))
		}
	}
	for _, a := range r.held {
		take(a)
	}
	r.held = nil
	for open := true; open; {
		select {
		case a, ok := <-r.in:
			if ok {
				take(a)
			} else {
				others = append(others, "connection closed")
				open = false
			}
		case <-time.After(r.quiet):
			open = false
		}
	}
	lines := 0
	for _, consumer := range slices.Sorted(maps.Keys(messages)) {
		for _, line := range messages[consumer] {
			r.note("%s < %s", r.name, line)
			lines++
		}
	}
	for _, line := range others {
		r.note("%s < %s", r.name, line)
		lines++
	}
	if lines == 0 {
		r.note("%s < nothing", r.name)
	}
	return ids
}

// produce creates producer 1.
func (r *raw) produce(topic string) {
	r.send(&wire.Producer{Topic: topic, Producer: 1, Request: r.request(), UserProvidedName: true, TopicEpoch: wire.Absent}, nil)
	for {
		a, ok := r.await()
		require.True(r.t, ok, "no producer")
		if _, ok := a.cmd.(*wire.ProducerSuccess); ok {
			return
		}
		r.held = append(r.held, a)
	}
}

// publish sends a message by producer 1 and returns its id. What meta leaves
// open is filled in.
func (r *raw) publish(payload string, change ...func(*wire.Metadata)) wire.MessageID {
	return r.publishData([]byte(payload), 1, change...)
}

func (r *raw) publishData(payload []byte, n int32, change ...func(*wire.Metadata)) wire.MessageID {
	meta := &wire.Metadata{ProducerName: "p", SequenceID: r.seq, PublishTime: uint64(time.Now().UnixMilli()), BatchSize: n}
	for _, f := range change {
		f(meta)
	}
	r.send(&wire.Send{Producer: 1, Sequence: r.seq, Messages: n}, wire.Join(meta, payload))
	r.seq++
	for {
		a, ok := r.await()
		require.True(r.t, ok, "no receipt")
		if m, ok := a.cmd.(*wire.SendReceipt); ok {
			id := *m.ID
			r.script.id(id) // number the ledger
			return id
		}
		r.held = append(r.held, a)
	}
}

// batch publishes n messages as one entry.
func (r *raw) batch(n int) wire.MessageID {
	var payload []byte
	for i := range n {
		text := strconv.Itoa(i)
		payload = wire.AppendBatched(payload, &wire.BatchMetadata{Size: int32(len(text))}, []byte(text))
	}
	return r.publishData(payload, int32(n))
}

func (r *raw) subscribe(id uint64, kind wire.SubType, change ...func(*wire.Subscribe)) {
	m := &wire.Subscribe{Topic: r.topic, Subscription: "s", SubType: kind, Consumer: id, Request: r.request(),
		Name: fmt.Sprintf("c%d", id), Durable: true, ForceTopic: true, Epoch: wire.Absent, InitialPosition: wire.Earliest}
	for _, f := range change {
		f(m)
	}
	r.send(m, nil)
	// The real broker ignores what comes for a consumer that is not ready yet.
	for {
		a, ok := r.await()
		require.True(r.t, ok, "no answer")
		switch x := a.cmd.(type) {
		case *wire.Success:
			if x.Request == m.Request {
				return
			}
		case *wire.Error:
			if x.Request == m.Request {
				r.note("%s < subscribe: %s", r.name, r.answer(a.cmd))
				return
			}
		}
		r.held = append(r.held, a)
	}
}

func (r *raw) flow(id uint64, n int) { r.send(&wire.Flow{Consumer: id, Permits: uint32(n)}, nil) }

func (r *raw) ack(id uint64, ids ...wire.MessageID) {
	r.send(&wire.Ack{Consumer: id, IDs: ids, Request: wire.Absent}, nil)
}

func (r *raw) ackUpTo(id uint64, upTo wire.MessageID) {
	r.send(&wire.Ack{Consumer: id, AckType: wire.Cumulative, IDs: []wire.MessageID{upTo}, Request: wire.Absent}, nil)
}

func (r *raw) redeliver(id uint64, ids ...wire.MessageID) {
	r.send(&wire.Redeliver{Consumer: id, IDs: ids, Epoch: wire.Absent}, nil)
}

func (r *raw) close() {
	r.open = slices.DeleteFunc(r.open, func(c *raw) bool { return c == r })
	_ = r.conn.Close()
	time.Sleep(r.quiet) // until the broker has noticed
}

// left is id with only the messages of its batch in set not acknowledged.
func left(id wire.MessageID, set int64) wire.MessageID {
	id.AckSet = []int64{set}
	return id
}

// ready is a connection with producer 1.
func ready(s *script) *raw {
	r := s.dial("a")
	r.produce(s.topic)
	return r
}
