package pulsartest

import (
	"net/http"
	"time"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// The statistics have the real broker's names. Counters are exact and start from 0 with each unload; rates are averages
// since the server began.

type topicStats struct {
	MsgInCounter   int                          `json:"msgInCounter"`
	MsgOutCounter  int                          `json:"msgOutCounter"`
	BytesInCounter int                          `json:"bytesInCounter"`
	StorageSize    int                          `json:"storageSize"`
	BacklogSize    int                          `json:"backlogSize"`
	Publishers     []publisherStats             `json:"publishers"`
	Subscriptions  map[string]subscriptionStats `json:"subscriptions"`
	Metadata       *partitionsStats             `json:"metadata,omitempty"`
	Partitions     map[string]*topicStats       `json:"partitions,omitempty"`
}

type partitionsStats struct {
	Partitions int  `json:"partitions"`
	Deleted    bool `json:"deleted"`
}

type publisherStats struct {
	ProducerID    uint64            `json:"producerId"`
	ProducerName  string            `json:"producerName"`
	AccessMode    string            `json:"accessMode"`
	ClientVersion string            `json:"clientVersion"`
	Address       string            `json:"address"`
	Metadata      map[string]string `json:"metadata"`
}

type subscriptionStats struct {
	MsgBacklog                       int             `json:"msgBacklog"`
	MsgBacklogNoDelayed              int             `json:"msgBacklogNoDelayed"`
	MsgDelayed                       int             `json:"msgDelayed"`
	UnackedMessages                  int             `json:"unackedMessages"`
	MsgInReplay                      int             `json:"msgInReplay"`
	BlockedSubscriptionOnUnackedMsgs bool            `json:"blockedSubscriptionOnUnackedMsgs"`
	MsgOutCounter                    int             `json:"msgOutCounter"`
	MsgRateRedeliver                 float64         `json:"msgRateRedeliver"`
	Type                             string          `json:"type"`
	ActiveConsumerName               string          `json:"activeConsumerName,omitempty"`
	Durable                          bool            `json:"isDurable"`
	Consumers                        []consumerStats `json:"consumers"`
}

type consumerStats struct {
	ConsumerName                 string            `json:"consumerName"`
	AvailablePermits             int               `json:"availablePermits"`
	UnackedMessages              int               `json:"unackedMessages"`
	BlockedConsumerOnUnackedMsgs bool              `json:"blockedConsumerOnUnackedMsgs"`
	MsgOutCounter                int               `json:"msgOutCounter"`
	MsgRateRedeliver             float64           `json:"msgRateRedeliver"`
	Address                      string            `json:"address"`
	Metadata                     map[string]string `json:"metadata"`
	ClientVersion                string            `json:"clientVersion"`
}

func (s *Server) adminStats(w http.ResponseWriter, r *http.Request) error {
	n, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	if s.partitions[n] > 0 {
		return failf(wire.TopicNotFound, "Topic %s is partitioned: ask for partitioned-stats", n)
	}
	reply(w, http.StatusOK, topics[0].stats())
	return nil
}

func (s *Server) adminPartitionedStats(w http.ResponseWriter, r *http.Request) error {
	n, topics, err := s.existing(r)
	if err != nil {
		return err
	}
	if s.partitions[n] == 0 {
		return failf(wire.TopicNotFound, "Topic %s is not partitioned", n)
	}
	sum := newTopicStats()
	sum.Metadata = &partitionsStats{Partitions: s.partitions[n]}
	sum.Partitions = map[string]*topicStats{}
	for _, t := range topics {
		one := t.stats()
		sum.add(one)
		if r.URL.Query().Get("perPartition") != "false" {
			sum.Partitions[t.name.String()] = one
		}
	}
	reply(w, http.StatusOK, sum)
	return nil
}

func newTopicStats() *topicStats {
	return &topicStats{Publishers: []publisherStats{}, Subscriptions: map[string]subscriptionStats{}}
}

func (t *topic) stats() *topicStats {
	st := newTopicStats()
	st.StorageSize = t.bytes
	for _, e := range t.log[t.loaded:] {
		st.MsgInCounter += e.counted
		st.BytesInCounter += len(e.data)
	}
	for _, p := range sortedProducers(t.producers) {
		st.Publishers = append(st.Publishers, publisherStats{ProducerID: p.id, ProducerName: p.name,
			AccessMode: p.mode.String(), Address: p.session.conn.RemoteAddr().String(),
			ClientVersion: p.session.version, Metadata: properties(p.meta)})
	}
	for name, sub := range t.subs {
		one := sub.stats()
		st.Subscriptions[name] = one
		st.MsgOutCounter += one.MsgOutCounter
		back := 0
		for i := sub.cursor.mark; i < len(t.log); i++ {
			back += len(t.log[i].data)
		}
		st.BacklogSize = max(st.BacklogSize, back)
	}
	return st
}

func (s *subscription) stats() subscriptionStats {
	st := subscriptionStats{
		MsgBacklog:                       s.cursor.backlog(len(s.topic.log)),
		MsgDelayed:                       len(s.delayed.heap),
		UnackedMessages:                  s.unacked,
		MsgInReplay:                      len(s.replay),
		BlockedSubscriptionOnUnackedMsgs: s.blocked,
		MsgOutCounter:                    s.gone.sent,
		MsgRateRedeliver:                 s.topic.server.rate(s.gone.redelivered),
		Type:                             s.title(),
		Durable:                          s.durable,
		Consumers:                        []consumerStats{},
	}
	st.MsgBacklogNoDelayed = st.MsgBacklog - st.MsgDelayed
	if s.active != nil {
		st.ActiveConsumerName = s.active.name
	}
	for _, c := range s.consumers {
		one := consumerStats{
			ConsumerName:                 c.name,
			AvailablePermits:             c.permits,
			UnackedMessages:              c.unacked,
			BlockedConsumerOnUnackedMsgs: c.blocked,
			MsgOutCounter:                c.sent,
			MsgRateRedeliver:             s.topic.server.rate(c.redelivered),
			Address:                      c.session.conn.RemoteAddr().String(),
			Metadata:                     properties(c.meta),
			ClientVersion:                c.session.version,
		}
		st.MsgOutCounter += one.MsgOutCounter
		st.MsgRateRedeliver += one.MsgRateRedeliver
		st.Consumers = append(st.Consumers, one)
	}
	return st
}

// rate returns n per second since the server began.
func (s *Server) rate(n int) float64 {
	return float64(n) / max(time.Since(s.began).Seconds(), 1)
}

// add adds the statistics of one partition to those of its topic.
func (st *topicStats) add(one *topicStats) {
	st.MsgInCounter += one.MsgInCounter
	st.MsgOutCounter += one.MsgOutCounter
	st.BytesInCounter += one.BytesInCounter
	st.StorageSize += one.StorageSize
	st.BacklogSize += one.BacklogSize
	st.Publishers = append(st.Publishers, one.Publishers...)
	for name, b := range one.Subscriptions {
		a, ok := st.Subscriptions[name]
		if !ok {
			st.Subscriptions[name] = b
			continue
		}
		a.MsgBacklog += b.MsgBacklog
		a.MsgBacklogNoDelayed += b.MsgBacklogNoDelayed
		a.MsgDelayed += b.MsgDelayed
		a.UnackedMessages += b.UnackedMessages
		a.MsgInReplay += b.MsgInReplay
		a.MsgOutCounter += b.MsgOutCounter
		a.MsgRateRedeliver += b.MsgRateRedeliver
		a.Consumers = append(a.Consumers, b.Consumers...)
		st.Subscriptions[name] = a
	}
}
