package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/dlqcommand"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// topicStats are the broker's statistics of a topic, all partitions together.
type topicStats struct {
	MsgRateIn     float64
	MsgInCounter  int64
	StorageSize   int64
	Subscriptions admin.Subscriptions[struct {
		Type                            string
		MsgBacklog                      int
		UnackedMessages                 int
		MsgDelayed                      int
		MsgRateOut                      float64
		MsgRateRedeliver                float64
		MsgOutCounter                   int64
		EarliestMsgPublishTimeInBacklog int64
		Consumers                       []struct{ ConsumerName string }
	}]
}

// stats asks the broker for the statistics of a topic. If the topic does not exist, admin.NotFound reports true for the
// error.
func (h *Handler) stats(ctx context.Context, topic string) (s topicStats, err error) {
	var metadata struct{ Partitions int }
	if err := h.api.Call(ctx, http.MethodGet, admin.Topic(topic)+"/partitions", nil, &metadata); err != nil {
		return s, err
	}
	path := "/stats"
	if metadata.Partitions > 0 {
		path = "/partitioned-stats"
	}
	const query = "?perPartition=false&getPreciseBacklog=true&getEarliestTimeInBacklog=true"
	err = h.api.Call(ctx, http.MethodGet, admin.Topic(topic)+path+query, nil, &s)
	return s, err
}

// consumersOf returns how many different consumers a subscription has. The broker lists a consumer once for each of
// its partitions.
func consumersOf(all []struct{ ConsumerName string }) int {
	names := map[string]bool{}
	for _, c := range all {
		names[c.ConsumerName] = true
	}
	return len(names)
}

// deadSubscription returns the subscription for replays and purges of a dead letter topic. redelivery dlq chooses the
// same one.
func (h *Handler) deadSubscription(ctx context.Context, topic string) (string, error) {
	s, err := h.stats(ctx, topic)
	if admin.NotFound(err) {
		return "", fmt.Errorf("there is no topic %s", short(topic))
	}
	if err != nil {
		return "", err
	}
	var all []dlqcommand.Subscription
	for name, of := range s.Subscriptions {
		all = append(all, dlqcommand.Subscription{Name: name, Consumers: len(of.Consumers)})
	}
	adopted := dlqcommand.Adopt(topic, false, all, func(name string) bool {
		journal, err := h.stats(ctx, topic+"-"+name)
		return err == nil && len(journal.Subscriptions) > 0
	})
	return cmp.Or(adopted, dlqcommand.DefaultSubscription), nil
}

// deadState returns a text that changes when letters arrive, are replayed or are purged.
func (h *Handler) deadState(ctx context.Context, x *letterIndex) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statePatience)
	defer cancel()
	s, err := h.stats(ctx, x.topic)
	if admin.NotFound(err) {
		return "none", nil
	}
	sub, exists := s.Subscriptions[x.subscription]
	return fmt.Sprint(s.MsgInCounter, s.StorageSize, exists, sub.MsgBacklog), err
}

// statePatience is how long a page waits for the broker's answer.
const statePatience = 2 * time.Second

// topicNames returns the names of the namespace's topics, without partitions. dead are the dead letter
// topics. work are the others, except retry topics, logs, journals and Pulsar's own topics.
func (h *Handler) topicNames(ctx context.Context) (work, dead []string, err error) {
	var names []string
	err = h.api.Call(ctx, http.MethodGet, admin.Topic(topicname.Persistent+h.o.Namespace), nil, &names)
	if admin.NotFound(err) {
		return nil, nil, fmt.Errorf("there is no namespace %s", show(h.o.Namespace))
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range names {
		names[i] = topicname.Base(names[i])
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		switch local := name[strings.LastIndex(name, "/")+1:]; {
		case strings.HasSuffix(name, pulsar.DlqTopicSuffix):
			dead = append(dead, name)
		case strings.HasSuffix(name, pulsar.RetryTopicSuffix), strings.HasSuffix(name, topicname.AttemptsSuffix),
			strings.HasPrefix(local, "__"):
		case isJournal(names, name):
		default:
			work = append(work, name)
		}
	}
	return work, dead, nil
}

// isJournal reports whether a topic is the journal of a dead letter topic. A journal's name is made of the name of the
// dead letter topic, a dash and a subscription.
func isJournal(names []string, name string) bool {
	i := strings.Index(name, pulsar.DlqTopicSuffix+"-")
	return i >= 0 && slices.Contains(names, name[:i+len(pulsar.DlqTopicSuffix)])
}
