package pulsartest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// topicHandlers serves topics as a whole.
func (s *Server) topicHandlers(topic string, handle handlers) {
	handle("PUT "+topic, s.adminCreate)
	handle("DELETE "+topic, s.adminDelete)
	handle("GET "+topic+"/partitions", s.adminPartitions)
	handle("PUT "+topic+"/partitions", s.adminCreatePartitions)
	handle("POST "+topic+"/partitions", s.adminAddPartitions)
	handle("DELETE "+topic+"/partitions", s.adminDeletePartitions)
	handle("PUT "+topic+"/unload", s.adminUnload)
	handle("POST "+topic+"/terminate", s.adminTerminate)
	handle("GET "+topic+"/stats", s.adminStats)
	handle("GET "+topic+"/partitioned-stats", s.adminPartitionedStats)
	handle("GET "+topic+"/internalStats", s.adminInternalStats)
	handle("GET "+topic+"/ledger/{ledger}/entry/{entry}", s.adminEntry)
	handle("GET /admin/v2/{domain}/{tenant}/{ns}", s.adminTopics)
}

func (s *Server) adminCreate(w http.ResponseWriter, r *http.Request) error {
	n, err := s.named(r)
	if err != nil {
		return err
	}
	if s.topics[n] != nil || s.partitions[n] > 0 {
		return refuse(http.StatusConflict, "This topic already exists")
	}
	if i := strings.LastIndex(n.local, partitionSuffix); i >= 0 {
		partition, err := strconv.Atoi(n.local[i+len(partitionSuffix):])
		base := n
		base.local, base.partition = n.local[:i], -1
		if err == nil && partition >= s.partitions[base] {
			return refuse(http.StatusPreconditionFailed,
				"Can't create topic %s: the partitioned topic has %d partitions", n, s.partitions[base])
		}
	}
	s.createTopic(n)
	return done(w)
}

func (s *Server) adminDelete(w http.ResponseWriter, r *http.Request) error {
	n, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	if s.partitions[n] > 0 {
		return refuse(http.StatusConflict, "%s is a partitioned topic", n)
	}
	return s.delete(w, r, n, topics)
}

func (s *Server) adminDeletePartitions(w http.ResponseWriter, r *http.Request) error {
	n, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	if s.partitions[n] == 0 {
		return refuse(http.StatusConflict, "%s is not a partitioned topic", n)
	}
	return s.delete(w, r, n, topics)
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, n topicName, topics []*topic) error {
	for _, t := range topics {
		busy := len(t.producers) > 0
		for _, sub := range t.subs {
			busy = busy || len(sub.consumers) > 0
		}
		if busy && r.URL.Query().Get("force") != "true" {
			return refuse(http.StatusPreconditionFailed, "Topic has active producers/subscriptions")
		}
	}
	delete(s.partitions, n)
	delete(s.schemas, n)
	delete(s.limits, n)
	for _, t := range topics {
		t.delete()
	}
	return done(w)
}

func (s *Server) adminPartitions(w http.ResponseWriter, r *http.Request) error {
	n, err := s.named(r)
	if err != nil {
		return err
	}
	create := r.URL.Query().Get("checkAllowAutoCreation") == "true" && !s.noAutoCreate
	if s.topics[n] == nil && s.partitions[n] == 0 && !create {
		return refuse(http.StatusNotFound, "Topic %s not found", n)
	}
	reply(w, http.StatusOK, struct {
		Partitions int  `json:"partitions"`
		Deleted    bool `json:"deleted"`
	}{s.partitions[n], false})
	return nil
}

func (s *Server) adminCreatePartitions(w http.ResponseWriter, r *http.Request) error {
	n, err := s.named(r)
	if err != nil {
		return err
	}
	partitions, err := decodePartitions(r)
	if err != nil || partitions < 1 {
		return refuse(http.StatusNotAcceptable, "Number of partitions should be more than 0")
	}
	if strings.Contains(n.local, partitionSuffix) {
		return refuse(http.StatusPreconditionFailed, "Partitioned Topic Name should not contain '-partition-'")
	}
	if len(s.matching(n.String())) > 0 {
		return refuse(http.StatusConflict, "This topic already exists")
	}
	s.setPartitions(n, partitions)
	return done(w)
}

func (s *Server) adminAddPartitions(w http.ResponseWriter, r *http.Request) error {
	n, err := s.named(r)
	if err != nil {
		return err
	}
	have := s.partitions[n]
	if have == 0 {
		return refuse(http.StatusConflict, "Topic %s is not a partitioned topic", n)
	}
	partitions, err := decodePartitions(r)
	if err != nil || partitions < have {
		return refuse(http.StatusUnprocessableEntity, "Number of partitions must be more than existing %d", have)
	}
	s.setPartitions(n, partitions)
	return done(w)
}

// decodePartitions reads the number of partitions from a request's body: a number, or an object with the number and
// with properties.
func decodePartitions(r *http.Request) (int, error) {
	var raw json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&raw); err != nil {
		return 0, err
	}
	var n int
	if json.Unmarshal(raw, &n) != nil {
		var object struct{ Partitions int }
		if err := json.Unmarshal(raw, &object); err != nil {
			return 0, err
		}
		n = object.Partitions
	}
	if n > 10_000 {
		return 0, refuse(http.StatusNotAcceptable, "Number of partitions should be at most 10000")
	}
	return n, nil
}

func (s *Server) adminUnload(w http.ResponseWriter, r *http.Request) error {
	_, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	for _, t := range topics {
		t.unload()
	}
	return done(w)
}

func (s *Server) adminTerminate(w http.ResponseWriter, r *http.Request) error {
	n, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	if s.partitions[n] > 0 {
		return refuse(http.StatusMethodNotAllowed, "Termination of a partitioned topic is not allowed")
	}
	topics[0].terminate()
	last := topics[0].last()
	reply(w, http.StatusOK, map[string]any{
		"ledgerId": int64(last.Ledger), "entryId": int64(last.Entry), "partitionIndex": last.Partition})
	return nil
}

// adminEntry returns an entry's payload as the body, and its metadata in headers.
func (s *Server) adminEntry(w http.ResponseWriter, r *http.Request) error {
	_, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	ledger, err1 := strconv.ParseUint(r.PathValue("ledger"), 10, 64)
	id, err2 := strconv.ParseUint(r.PathValue("entry"), 10, 64)
	offset, found := topics[0].find(ledger, id)
	if err1 != nil || err2 != nil || !found {
		return refuse(http.StatusNotFound, "Message id not found")
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
	if e.batch {
		h.Set("X-Pulsar-Num-Batch-Message", strconv.Itoa(e.messages))
	}
	h.Set("Content-Type", "application/octet-stream")
	_, err = w.Write(payload)
	return err
}

// adminTopics lists a namespace's topics. A partitioned topic is listed by its partitions.
func (s *Server) adminTopics(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("tenant") + "/" + r.PathValue("ns")
	if !s.namespaces[name] {
		return refuse(http.StatusNotFound, "Namespace %s does not exist", name)
	}
	mode := wire.Persistent
	if r.PathValue("domain") == "non-persistent" {
		mode = wire.NonPersistent
	}
	reply(w, http.StatusOK, s.topicsOf(name, mode))
	return nil
}
