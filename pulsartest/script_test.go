package pulsartest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
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
	open    []*raw
	mu      sync.Mutex
	ledgers map[uint64]int
	trace   []string
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// rest calls the admin API and returns the status.
func (s *script) rest(method, path, body string) string {
	status, _ := s.call(method, path, body)
	return strconv.Itoa(status)
}

func (s *script) call(method, path, body string) (int, []byte) {
	req, err := http.NewRequest(method, s.admin+path, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // no connection stays behind
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, answer
}

// stats writes down what the topic's statistics say.
func (s *script) stats(when string) {
	_, body := s.call(http.MethodGet, s.path(s.topic)+"/stats", "")
	var all topicStats
	require.NoError(s.t, json.Unmarshal(body, &all))
	sub := all.Subscriptions["s"]
	s.note("%s: in %d, producers %d; %s backlog %d, unacked %d, out %d, delayed %d", when, all.MsgInCounter, len(all.Publishers),
		sub.Type, sub.MsgBacklog, sub.UnackedMessages, sub.MsgOutCounter, sub.MsgDelayed)
	for _, c := range sub.Consumers {
		s.note("  %s: permits %d, unacked %d, out %d", c.ConsumerName, c.AvailablePermits, c.UnackedMessages, c.MsgOutCounter)
	}
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
