package fidelity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script drives a broker and records its answers. It normalizes values that differ between runs.
type script struct {
	t     testing.TB
	url   string
	admin string
	quiet time.Duration // drain stops after a pause of this length
	topic string        // used only by this run
	open  []*conn

	mu      sync.Mutex // guards the fields below
	ledgers map[uint64]int
	trace   []string
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// callAdmin calls the admin API and records the status. A path without a leading slash is relative to the script's
// topic.
func (s *script) callAdmin(method, path, body string) []byte {
	status, answer := s.call(method, path, body)
	if path == "" {
		path = "topic"
	}
	s.note("%s %s: %d", method, strings.Trim(path, "/"), status)
	return bytes.TrimSpace(answer)
}

func (s *script) call(method, path, body string) (int, []byte) {
	for _, c := range s.open { // the broker may execute requests of the admin API before commands that were sent earlier
		c.fence()
	}
	if !strings.HasPrefix(path, "/") {
		if path != "" && path[0] != '?' {
			path = "/" + path
		}
		path = "/admin/v2/persistent/public/default/" + s.topic + path
	}
	req, err := http.NewRequest(method, s.admin+path, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // so that no connection stays open
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, answer
}

type topicStats struct {
	MsgInCounter  int
	Publishers    []json.RawMessage
	Subscriptions map[string]struct {
		Type               string
		MsgBacklog         int
		UnackedMessages    int
		MsgOutCounter      int
		MsgDelayed         int
		ActiveConsumerName string
		Consumers          []struct {
			ConsumerName                 string
			AvailablePermits             int
			UnackedMessages              int
			MsgOutCounter                int
			BlockedConsumerOnUnackedMsgs bool
		}
	}
}

// recordBacklog records the backlog of subscription s.
func (s *script) recordBacklog(when string) {
	_, body := s.call(http.MethodGet, "stats", "")
	var all topicStats
	require.NoError(s.t, json.Unmarshal(body, &all))
	s.note("%s: backlog %d", when, all.Subscriptions["s"].MsgBacklog)
}

// stats records the topic's statistics of producers and of subscription s.
func (s *script) stats(when string) {
	status, body := s.call(http.MethodGet, "stats", "")
	require.Equal(s.t, http.StatusOK, status, string(body))
	var all topicStats
	require.NoError(s.t, json.Unmarshal(body, &all))
	sub, ok := all.Subscriptions["s"]
	if !ok {
		s.note("%s: in %d, producers %d; no subscription", when, all.MsgInCounter, len(all.Publishers))
		return
	}
	s.note("%s: in %d, producers %d; %s backlog %d, unacked %d, out %d, delayed %d", when, all.MsgInCounter,
		len(all.Publishers),
		sub.Type, sub.MsgBacklog, sub.UnackedMessages, sub.MsgOutCounter, sub.MsgDelayed)
	for _, c := range sub.Consumers {
		blocked := ""
		if c.BlockedConsumerOnUnackedMsgs {
			blocked = ", blocked"
		}
		s.note("  %s: permits %d, unacked %d, out %d%s", c.ConsumerName, c.AvailablePermits, c.UnackedMessages,
			c.MsgOutCounter, blocked)
	}
}

// id returns the text of a message id. It numbers ledgers in the order in which they appear.
func (s *script) id(id messageID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ledger := "-1"
	if id.ledger < math.MaxInt64 {
		n, ok := s.ledgers[id.ledger]
		if !ok {
			n = len(s.ledgers)
			s.ledgers[id.ledger] = n
		}
		ledger = fmt.Sprintf("L%d", n)
	}
	out := fmt.Sprintf("%s:%d:%d", ledger, int64(id.entry), id.partition)
	if id.index >= 0 {
		out += fmt.Sprintf(":%d", id.index)
	}
	if id.size > 0 {
		out += fmt.Sprintf("/%d", id.size)
	}
	for _, word := range id.left {
		out += fmt.Sprintf(" left %b", word)
	}
	return out
}
