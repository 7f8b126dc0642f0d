package pulsartest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// adminHandler serves the part of the admin REST API that tests of clients need.
func (s *Server) adminHandler() http.Handler {
	const topic = "/admin/v2/{domain}/{tenant}/{ns}/{topic}"
	mux := http.NewServeMux()
	handle := func(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err := f(w, r); err != nil {
				reply(w, statusOf(err), map[string]string{"reason": err.Error()})
			}
		})
	}
	handle("PUT "+topic, s.adminCreate)
	handle("DELETE "+topic, s.adminDelete)
	handle("GET "+topic+"/partitions", s.adminPartitions)
	handle("PUT "+topic+"/partitions", s.adminSetPartitions)
	handle("POST "+topic+"/partitions", s.adminSetPartitions)
	handle("DELETE "+topic+"/partitions", s.adminDelete)
	handle("PUT "+topic+"/unload", s.adminUnload)
	handle("POST "+topic+"/terminate", s.adminTerminate)
	handle("GET "+topic+"/stats", s.adminStats)
	handle("GET "+topic+"/partitioned-stats", s.adminPartitionedStats)
	handle("GET "+topic+"/subscriptions", s.adminSubscriptions)
	handle("GET "+topic+"/ledger/{ledger}/entry/{entry}", s.adminEntry)
	handle("GET /admin/v2/{domain}/{tenant}/{ns}", s.adminTopics)
	handle("GET /admin/v2/brokers/health", func(w http.ResponseWriter, _ *http.Request) error {
		_, err := w.Write([]byte("ok"))
		return err
	})
	s.policyHandlers(topic, handle)
	s.namespaceHandlers(handle)
	return mux
}

type handlers func(pattern string, f func(w http.ResponseWriter, r *http.Request) error)

func reply(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func statusOf(err error) int {
	switch codeOf(err) {
	case wire.TopicNotFound, wire.SubscriptionNotFound:
		return http.StatusNotFound
	case wire.ProducerBusy: // it exists
		return http.StatusConflict
	}
	return http.StatusPreconditionFailed
}

// named is the topic of a request's path.
func named(r *http.Request) (topicName, error) {
	name := r.PathValue("domain") + "://" + r.PathValue("tenant") + "/" + r.PathValue("ns") + "/" + r.PathValue("topic")
	n, err := parseTopic(name)
	if err != nil {
		return n, failf(wire.InvalidTopicName, "%v", err)
	}
	return n, nil
}

// existing are the topic of a request's path, or its partitions.
func (s *Server) existing(r *http.Request) (topicName, []*topic, error) {
	n, err := named(r)
	if err != nil {
		return n, nil, err
	}
	if n.partition >= 0 && s.topics[n] == nil {
		_, _ = s.topic(n.String(), false) // a partition that nobody has named yet
	}
	topics := s.matching(n.String())
	if len(topics) == 0 {
		return n, nil, failf(wire.TopicNotFound, "Topic %s not found", n)
	}
	return n, topics, nil
}

func (s *Server) adminCreate(w http.ResponseWriter, r *http.Request) error {
	n, err := named(r)
	if err != nil {
		return err
	}
	if s.topics[n] != nil || s.partitions[n] > 0 {
		return failf(wire.ProducerBusy, "This topic already exists")
	}
	s.createTopic(n)
	reply(w, http.StatusNoContent, nil)
	return nil
}

func (s *Server) adminDelete(w http.ResponseWriter, r *http.Request) error {
	n, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	for _, t := range topics {
		busy := len(t.producers) > 0
		for _, sub := range t.subs {
			busy = busy || len(sub.consumers) > 0
		}
		if busy && r.URL.Query().Get("force") != "true" {
			return failf(wire.NotAllowedError, "Topic has active producers/subscriptions")
		}
	}
	delete(s.partitions, n)
	delete(s.schemas, n)
	for _, t := range topics {
		t.delete()
	}
	reply(w, http.StatusNoContent, nil)
	return nil
}

func (s *Server) adminPartitions(w http.ResponseWriter, r *http.Request) error {
	n, err := named(r)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, map[string]any{"partitions": s.partitions[n], "deleted": false})
	return nil
}

func (s *Server) adminSetPartitions(w http.ResponseWriter, r *http.Request) error {
	n, err := named(r)
	if err != nil {
		return err
	}
	partitions, err := decodePartitions(r)
	if err != nil || partitions < 1 || partitions > 10_000 {
		return failf(wire.NotAllowedError, "Number of partitions should be between 1 and 10000")
	}
	have := s.partitions[n]
	switch {
	case r.Method == http.MethodPut && (have > 0 || s.topics[n] != nil):
		return failf(wire.ProducerBusy, "This topic already exists")
	case r.Method == http.MethodPost && have == 0:
		return failf(wire.TopicNotFound, "Topic %s is not partitioned", n)
	case partitions < have:
		return failf(wire.NotAllowedError, "Number of partitions must be more than existing %d", have)
	}
	s.setPartitions(n, partitions)
	reply(w, http.StatusNoContent, nil)
	return nil
}

// decodePartitions reads a number, or an object with one and with properties.
func decodePartitions(r *http.Request) (int, error) {
	var raw json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&raw); err != nil {
		return 0, err
	}
	var n int
	if json.Unmarshal(raw, &n) == nil {
		return n, nil
	}
	var object struct{ Partitions int }
	err := json.Unmarshal(raw, &object)
	return object.Partitions, err
}

func (s *Server) adminUnload(w http.ResponseWriter, r *http.Request) error {
	_, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	for _, t := range topics {
		t.unload()
	}
	reply(w, http.StatusNoContent, nil)
	return nil
}

func (s *Server) adminTerminate(w http.ResponseWriter, r *http.Request) error {
	_, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	for _, t := range topics {
		t.terminate()
	}
	last := topics[0].last()
	reply(w, http.StatusOK, map[string]any{
		"ledgerId": int64(last.Ledger), "entryId": int64(last.Entry), "partitionIndex": last.Partition})
	return nil
}

func (s *Server) adminSubscriptions(w http.ResponseWriter, r *http.Request) error {
	_, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	names := []string{}
	for name := range topics[0].subs {
		names = append(names, name)
	}
	slices.Sort(names)
	reply(w, http.StatusOK, names)
	return nil
}

// adminEntry returns an entry's payload, its metadata in headers.
func (s *Server) adminEntry(w http.ResponseWriter, r *http.Request) error {
	_, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	ledger, err1 := strconv.ParseUint(r.PathValue("ledger"), 10, 64)
	id, err2 := strconv.ParseUint(r.PathValue("entry"), 10, 64)
	offset, found := topics[0].find(ledger, id)
	if err1 != nil || err2 != nil || !found {
		return failf(wire.TopicNotFound, "Message id not found")
	}
	e := topics[0].log[offset]
	raw, payload, err := wire.Split(e.data)
	if err != nil {
		return err
	}
	meta, err := wire.ParseMetadata(raw)
	if err != nil {
		return err
	}
	if plain, ok := decompress(&meta, payload); ok {
		payload = plain
	}
	h := w.Header()
	h.Set("X-Pulsar-Message-Id", strconv.FormatUint(e.ledger, 10)+":"+strconv.FormatUint(e.id, 10))
	for _, kv := range meta.Properties {
		h.Set("X-Pulsar-Property-"+kv.Key, kv.Value)
	}
	if wire.IsBatch(raw) {
		h.Set("X-Pulsar-Num-Batch-Message", strconv.Itoa(e.messages))
	}
	h.Set("Content-Type", "application/octet-stream")
	_, err = w.Write(payload)
	return err
}

// adminTopics lists topics without what partitions would add to them.
func (s *Server) adminTopics(w http.ResponseWriter, r *http.Request) error {
	mode := wire.Persistent
	if !strings.HasPrefix(r.PathValue("domain"), "persistent") {
		mode = wire.NonPersistent
	}
	reply(w, http.StatusOK, s.topicsOf(r.PathValue("tenant")+"/"+r.PathValue("ns"), mode))
	return nil
}
