package pulsartest

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
	"github.com/stretchr/testify/require"
)

// script drives a broker command by command and writes down what it answers,
// with what differs from run to run made equal.
type script struct {
	t       *testing.T
	url     string
	admin   string
	quiet   time.Duration // nothing more comes after that
	topic   string
	mu      sync.Mutex
	ledgers map[uint64]int
	trace   []string
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// rest calls the admin API.
func (s *script) rest(method, path, body string) string {
	req, err := http.NewRequest(method, s.admin+path, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // no connection stays behind
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	return strconv.Itoa(resp.StatusCode)
}

func (s *script) path(topic string) string {
	return "/admin/v2/persistent/public/default/" + topic
}

// id is a message id with the ledgers numbered as they appear.
func (s *script) id(id wire.MessageID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ledger := "-1"
	if id.Ledger != math.MaxUint64 {
		n, ok := s.ledgers[id.Ledger]
		if !ok {
			n = len(s.ledgers)
			s.ledgers[id.Ledger] = n
		}
		ledger = fmt.Sprintf("L%d", n)
	}
	out := fmt.Sprintf("%s:%d:%d", ledger, int64(id.Entry), id.Partition)
	if id.BatchIndex >= 0 {
		out += fmt.Sprintf(":%d", id.BatchIndex)
	}
	return out
}

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

// drain writes down all that comes until it is quiet: first the messages of
// each consumer in their order, then the rest in its own.
func (r *raw) drain() []wire.MessageID {
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

func (r *raw) describe(m *wire.Message, data []byte) string {
	raw, payload, err := wire.Split(data)
	require.NoError(r.t, err)
	meta, err := wire.ParseMetadata(raw)
	require.NoError(r.t, err)
	text := string(payload)
	if wire.IsBatch(raw) {
		text = fmt.Sprintf("batch of %d", meta.BatchSize)
	}
	out := fmt.Sprintf("MESSAGE to %d %s count %d %q", m.Consumer, r.id(m.ID), m.RedeliveryCount, text)
	if len(m.AckSet) > 0 {
		out += fmt.Sprintf(" left %b", m.AckSet)
	}
	return out
}

// answer describes a command without what is left to the broker.
func (r *raw) answer(cmd wire.Command) string {
	switch m := cmd.(type) {
	case *wire.Error:
		return fmt.Sprintf("ERROR %d", m.Error)
	case *wire.SendReceipt:
		return fmt.Sprintf("SEND_RECEIPT %d %s highest %d", m.Sequence, r.id(*m.ID), int64(m.HighestID))
	case *wire.SendError:
		return fmt.Sprintf("SEND_ERROR %d %d", m.Sequence, m.Error)
	case *wire.ProducerSuccess:
		return fmt.Sprintf("PRODUCER_SUCCESS last %d ready %t schema %x epoch %d", m.LastSequenceID, m.Ready, m.SchemaVersion, m.TopicEpoch)
	case *wire.CloseConsumer:
		return fmt.Sprintf("CLOSE_CONSUMER %d", m.Consumer)
	case *wire.CloseProducer:
		return fmt.Sprintf("CLOSE_PRODUCER %d", m.Producer)
	case *wire.ActiveConsumerChange:
		return fmt.Sprintf("ACTIVE_CONSUMER_CHANGE %d %t", m.Consumer, m.Active)
	case *wire.AckResponse:
		return fmt.Sprintf("ACK_RESPONSE error %d", m.Error)
	case *wire.GetLastMessageIDResponse:
		out := "GET_LAST_MESSAGE_ID_RESPONSE " + r.id(*m.Last)
		if m.MarkDelete != nil {
			out += fmt.Sprintf(" mark %d", int64(m.MarkDelete.Entry))
		}
		return out
	case *wire.PartitionedMetadataResponse:
		return fmt.Sprintf("PARTITIONED_METADATA_RESPONSE %d error %d", m.Partitions, m.Error)
	case *wire.GetOrCreateSchemaResponse:
		return fmt.Sprintf("GET_OR_CREATE_SCHEMA_RESPONSE %x error %d", m.Version, m.Error)
	case *wire.GetSchemaResponse:
		out := fmt.Sprintf("GET_SCHEMA_RESPONSE %x error %d", m.Version, m.Error)
		if m.Schema != nil {
			out += fmt.Sprintf(" %s %q", m.Schema.Type, m.Schema.Data)
		}
		return out
	case *wire.GetTopicsResponse:
		var topics []string
		for _, t := range m.Topics {
			if strings.Contains(t, r.topic) {
				topics = append(topics, strings.ReplaceAll(t, r.topic, "T"))
			}
		}
		slices.Sort(topics)
		return fmt.Sprint("GET_TOPICS_OF_NAMESPACE_RESPONSE ", topics)
	}
	return cmd.Type().String()
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
	_ = r.conn.Close()
	time.Sleep(r.quiet) // until the broker has noticed
}

// left is id with only the messages of its batch in set not acknowledged.
func left(id wire.MessageID, set int64) wire.MessageID {
	id.AckSet = []int64{set}
	return id
}
