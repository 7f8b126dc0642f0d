package pulsartest

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// subscriptionHandlers serves subscriptions. On a partitioned topic, a request applies to the subscription on each
// partition.
func (s *Server) subscriptionHandlers(topic string, handle handlers) {
	handle("GET "+topic+"/subscriptions", s.adminSubscriptions)
	handle("PUT "+topic+"/subscription/{sub}", s.adminSubscribe)
	handle("DELETE "+topic+"/subscription/{sub}", s.adminUnsubscribe)
	handle("POST "+topic+"/subscription/{sub}/skip_all", s.adminSkipAll)
	handle("POST "+topic+"/subscription/{sub}/skip/{n}", s.adminSkip)
	handle("POST "+topic+"/subscription/{sub}/resetcursor/{time}", s.adminResetToTime)
	handle("POST "+topic+"/subscription/{sub}/resetcursor", s.adminResetToMessage)
}

func (s *Server) adminSubscriptions(w http.ResponseWriter, r *http.Request) error {
	_, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	names := []string{}
	for _, t := range topics {
		for name := range t.subs {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	reply(w, http.StatusOK, slices.Compact(names))
	return nil
}

// subscriptions returns the subscription of a request's path, from each partition that has it.
func (s *Server) subscriptions(r *http.Request) ([]*subscription, error) {
	_, topics, err := s.existing(r)
	if err != nil {
		return nil, err
	}
	var subs []*subscription
	for _, t := range topics {
		if sub := t.subs[r.PathValue("sub")]; sub != nil {
			subs = append(subs, sub)
		}
	}
	if len(subs) == 0 {
		return nil, refuse(http.StatusNotFound, "Subscription %s not found", r.PathValue("sub"))
	}
	return subs, nil
}

// position is a message id in JSON. A request without a position means the end of the topic.
type position struct {
	LedgerID int64 `json:"ledgerId"`
	EntryID  int64 `json:"entryId"`
	Excluded bool  `json:"excluded"`
}

func readPosition(r *http.Request) position {
	p := position{LedgerID: math.MaxInt64, EntryID: math.MaxInt64}
	_ = json.NewDecoder(r.Body).Decode(&p)
	return p
}

// offset returns the offset of the first entry at or after p. If p.Excluded is set, it steps over the entry at p.
func (t *topic) offset(p position) int {
	switch {
	case p.LedgerID < 0:
		return 0
	case p.LedgerID == math.MaxInt64:
		return len(t.log)
	}
	i, found := t.find(uint64(p.LedgerID), uint64(max(p.EntryID, 0)))
	if found && p.Excluded {
		i++
	}
	return i
}

func (s *Server) adminSubscribe(w http.ResponseWriter, r *http.Request) error {
	n, err := s.named(r)
	if err != nil {
		return err
	}
	if len(s.matching(n.String())) == 0 {
		if have := s.partitions[n.base()]; have > 0 && int(n.partition) >= have {
			return refuse(http.StatusPreconditionFailed, "Topic does not exist and cannot be auto-created")
		}
		if _, err := s.topic(n.String(), true); err != nil {
			return err
		}
	}
	topics, name, p := s.matching(n.String()), r.PathValue("sub"), readPosition(r)
	for _, t := range topics {
		if t.subs[name] != nil {
			return refuse(http.StatusConflict, "Subscription already exists for topic")
		}
	}
	for _, t := range topics {
		t.subs[name] = newSubscription(t, name, true, t.offset(p))
	}
	return done(w)
}

func (s *Server) adminUnsubscribe(w http.ResponseWriter, r *http.Request) error {
	subs, err := s.subscriptions(r)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		if len(sub.consumers) > 0 && r.URL.Query().Get("force") != "true" {
			return refuse(http.StatusPreconditionFailed, "Subscription has active connected consumers")
		}
	}
	for _, sub := range subs {
		sub.closeConsumers(nil)
		sub.stop()
		delete(sub.topic.subs, sub.name)
	}
	return done(w)
}

// skip acknowledges entries without the consumers' knowledge. If a consumer has a skipped entry, the entry still counts
// as unacknowledged until the consumer is removed or requests a redelivery of the entry.
func (s *subscription) skip(entries int) {
	offset := s.cursor.mark
	for ; offset < len(s.topic.log) && entries > 0; offset++ {
		if !s.cursor.acked(offset) {
			entries--
		}
	}
	s.cursor.ackUpTo(offset)
	s.dispatch()
}

func (s *Server) adminSkip(w http.ResponseWriter, r *http.Request) error {
	subs, err := s.subscriptions(r)
	if err != nil {
		return err
	}
	asked := r.PathValue("domain") + "://" + r.PathValue("tenant") + "/" + r.PathValue("ns") + "/" +
		r.PathValue("topic")
	if subs[0].topic.name.String() != asked {
		return refuse(http.StatusMethodNotAllowed, "Skip messages on a partitioned topic is not allowed")
	}
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		return refuse(http.StatusNotFound, "%v", err)
	}
	subs[0].skip(n)
	return done(w)
}

func (s *Server) adminSkipAll(w http.ResponseWriter, r *http.Request) error {
	subs, err := s.subscriptions(r)
	if err != nil {
		return err
	}
	for _, sub := range subs {
		sub.skip(len(sub.topic.log))
	}
	return done(w)
}

func (s *Server) adminResetToTime(w http.ResponseWriter, r *http.Request) error {
	subs, err := s.subscriptions(r)
	if err != nil {
		return err
	}
	ms, err := strconv.ParseUint(r.PathValue("time"), 10, 64)
	if err != nil {
		return refuse(http.StatusNotFound, "%v", err)
	}
	for _, sub := range subs {
		sub.reset(sub.topic.findTime(ms))
	}
	return done(w)
}

func (s *Server) adminResetToMessage(w http.ResponseWriter, r *http.Request) error {
	subs, err := s.subscriptions(r)
	if err != nil {
		return err
	}
	p := readPosition(r)
	for _, sub := range subs {
		sub.reset(sub.topic.offset(p))
	}
	return done(w)
}

// schemaHandlers serves the schemas of topics.
func (s *Server) schemaHandlers(handle handlers) {
	const schema = "/admin/v2/schemas/{tenant}/{ns}/{topic}/schema"
	handle("GET "+schema, s.adminSchema)
	handle("GET "+schema+"/{version}", s.adminSchema)
	handle("DELETE "+schema, func(w http.ResponseWriter, r *http.Request) error {
		n, err := parseTopic(r.PathValue("tenant") + "/" + r.PathValue("ns") + "/" + r.PathValue("topic"))
		if err != nil {
			return failf(wire.InvalidTopicName, "%v", err)
		}
		delete(s.schemas, n.base())
		reply(w, http.StatusOK, map[string]int{"version": 0})
		return nil
	})
}
