package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// Info is what the broker's statistics say about a dead letter or retry topic.
type Info struct {
	Topic         string             `json:"topic"`                // its whole name
	Retry         bool               `json:"retry,omitempty"`      // not a dead letter topic
	Partitions    int                `json:"partitions,omitempty"` // 0 if it is not partitioned
	Rate          float64            `json:"rate"`                 // incoming messages a second, over the last minute
	Bytes         int64              `json:"bytes"`                // stored
	Subscriptions []SubscriptionInfo `json:"subscriptions"`        // if empty, the broker deletes messages unread
}

// SubscriptionInfo is what the broker's statistics say about a subscription.
type SubscriptionInfo struct {
	Name      string    `json:"name"`            // of the subscription
	Backlog   int       `json:"backlog"`         // entries, each a message, a batch or a chunk
	Oldest    time.Time `json:"oldest,omitzero"` // publish time of the first entry in the backlog, if the broker tells it
	Consumers int       `json:"consumers"`       // connected now
}

// List returns the dead letter and retry topics of a namespace such as public/default: the topics whose names end in -DLQ or
// -RETRY.
func List(ctx context.Context, a Admin, namespace string) ([]Info, error) {
	if a.URL == "" {
		return nil, fmt.Errorf("deadletter: Admin.URL %s", wantAddress)
	}
	var names []string
	err := a.call(ctx, admin.Topic("persistent://"+namespace), &names)
	if notFound(err) {
		return nil, fmt.Errorf("deadletter: no such namespace: %s", namespace)
	}
	if err != nil {
		return nil, err
	}
	partitions := map[string]int{}
	for _, name := range names {
		base := publishing.BaseTopic(name)
		if strings.HasSuffix(base, pulsar.DlqTopicSuffix) || strings.HasSuffix(base, pulsar.RetryTopicSuffix) {
			partitions[base] += 0
			if base != name {
				partitions[base]++
			}
		}
	}
	all := []Info{}
	for _, topic := range slices.Sorted(maps.Keys(partitions)) {
		info, err := inspect(ctx, a, topic, partitions[topic])
		if errors.Is(err, ErrNoTopic) { // deleted meanwhile
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, info)
	}
	return all, nil
}

const wantAddress = `is "", want the address of the admin API, such as http://localhost:8080`

// Info returns what the broker's statistics say about the topic. It needs an admin API.
func (t *Topic) Info(ctx context.Context) (Info, error) {
	if t.o.Admin.URL == "" {
		return Info{}, fmt.Errorf("deadletter: Options.Admin.URL %s", wantAddress)
	}
	partitions, err := t.partitions(ctx, t.o.Topic)
	if err != nil {
		return Info{}, err
	}
	n := len(partitions)
	if partitions[0] == t.o.Topic {
		n = 0
	}
	return inspect(ctx, t.o.Admin, t.o.Topic, n)
}

func inspect(ctx context.Context, a Admin, topic string, partitions int) (Info, error) {
	var stats struct {
		MsgRateIn     float64
		StorageSize   int64
		Subscriptions map[string]struct {
			MsgBacklog                      int
			EarliestMsgPublishTimeInBacklog int64
			Consumers                       []struct{}
		}
	}
	path := "/stats"
	if partitions > 0 {
		path = "/partitioned-stats"
	}
	err := a.call(ctx, admin.Topic(topic)+path+"?perPartition=false&getPreciseBacklog=true&getEarliestTimeInBacklog=true", &stats)
	if notFound(err) {
		return Info{}, fmt.Errorf("%w: %s", ErrNoTopic, topic)
	}
	info := Info{Topic: topic, Retry: strings.HasSuffix(topic, pulsar.RetryTopicSuffix), Partitions: partitions,
		Rate: stats.MsgRateIn, Bytes: stats.StorageSize, Subscriptions: []SubscriptionInfo{}}
	for name, s := range stats.Subscriptions {
		sub := SubscriptionInfo{Name: name, Backlog: s.MsgBacklog, Consumers: len(s.Consumers)}
		if s.EarliestMsgPublishTimeInBacklog > 0 && s.MsgBacklog > 0 {
			sub.Oldest = time.UnixMilli(s.EarliestMsgPublishTimeInBacklog)
		}
		info.Subscriptions = append(info.Subscriptions, sub)
	}
	slices.SortFunc(info.Subscriptions, func(a, b SubscriptionInfo) int { return cmp.Compare(a.Name, b.Name) })
	return info, err
}
