package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// topicInfo has the broker's statistics of a dead letter or retry topic.
type topicInfo struct {
	Topic         string             `json:"topic"`                // full name
	Retry         bool               `json:"retry,omitempty"`      // whether this is a retry topic
	Partitions    int                `json:"partitions,omitempty"` // 0 if it is not partitioned
	Rate          float64            `json:"rate"`                 // incoming messages a second, over the last minute
	Bytes         int64              `json:"bytes"`                // stored
	Subscriptions []subscriptionInfo `json:"subscriptions"`        // if empty, the broker deletes messages unread
}

// subscriptionInfo has the broker's statistics of a subscription.
type subscriptionInfo struct {
	Name    string `json:"name"`
	Backlog int    `json:"backlog"` // entries, each a message, a batch or a chunk
	// publish time of the first entry in the backlog; zero if the broker does not say
	Oldest    time.Time `json:"oldest,omitzero"`
	Consumers int       `json:"consumers"` // connected now
}

// topicsOf returns the topics of a namespace whose names end in -DLQ or -RETRY, and each other topic that isWanted
// accepts. If isWanted is nil, it returns no other topics.
func topicsOf(
	ctx context.Context, api admin.API, namespace string, isWanted func(string) (bool, error)) ([]topicInfo, error) {
	var names []string
	err := api.Call(ctx, http.MethodGet, admin.Topic(topicname.Persistent+namespace), nil, &names)
	if admin.NotFound(err) {
		return nil, fmt.Errorf("no such namespace: %s", namespace)
	}
	if err != nil {
		return nil, err
	}
	partitions := map[string]int{}
	for _, name := range names {
		base := topicname.Base(name)
		partitions[base] += 0
		if base != name {
			partitions[base]++
		}
	}
	for base := range partitions {
		taken := strings.HasSuffix(base, pulsar.DlqTopicSuffix) || strings.HasSuffix(base, pulsar.RetryTopicSuffix)
		if !taken && isWanted != nil {
			taken, err = isWanted(base)
			if err != nil {
				return nil, err
			}
		}
		if !taken {
			delete(partitions, base)
		}
	}
	all := []topicInfo{}
	for _, topic := range slices.Sorted(maps.Keys(partitions)) {
		info, err := statistics(ctx, api, topic, partitions[topic])
		if errors.Is(err, deadletter.ErrNoTopic) { // deleted since the call above
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, info)
	}
	return all, nil
}

// topicNamed returns the statistics of the topic with this full name.
func topicNamed(ctx context.Context, api admin.API, topic string) (topicInfo, error) {
	var metadata struct{ Partitions int }
	err := api.Call(ctx, http.MethodGet, admin.Topic(topic)+"/partitions", nil, &metadata)
	if admin.NotFound(err) {
		return topicInfo{}, fmt.Errorf("%w: %s", deadletter.ErrNoTopic, topic)
	}
	if err != nil {
		return topicInfo{}, err
	}
	return statistics(ctx, api, topic, metadata.Partitions)
}

func statistics(ctx context.Context, api admin.API, topic string, partitions int) (topicInfo, error) {
	var stats struct {
		MsgRateIn     float64
		StorageSize   int64
		Subscriptions admin.Subscriptions[struct {
			MsgBacklog                      int
			EarliestMsgPublishTimeInBacklog int64
			Consumers                       []struct{}
		}]
	}
	path := admin.Topic(topic) + "/stats"
	if partitions > 0 {
		path = admin.Topic(topic) + "/partitioned-stats"
	}
	err := api.Call(ctx, http.MethodGet,
		path+"?perPartition=false&getPreciseBacklog=true&getEarliestTimeInBacklog=true", nil, &stats)
	if admin.NotFound(err) {
		return topicInfo{}, fmt.Errorf("%w: %s", deadletter.ErrNoTopic, topic)
	}
	info := topicInfo{Topic: topic, Retry: strings.HasSuffix(topic, pulsar.RetryTopicSuffix), Partitions: partitions,
		Rate: stats.MsgRateIn, Bytes: stats.StorageSize, Subscriptions: []subscriptionInfo{}}
	for name, s := range stats.Subscriptions {
		sub := subscriptionInfo{Name: name, Backlog: s.MsgBacklog, Consumers: len(s.Consumers)}
		if s.EarliestMsgPublishTimeInBacklog > 0 && s.MsgBacklog > 0 {
			sub.Oldest = time.UnixMilli(s.EarliestMsgPublishTimeInBacklog)
		}
		info.Subscriptions = append(info.Subscriptions, sub)
	}
	slices.SortFunc(info.Subscriptions, func(a, b subscriptionInfo) int { return cmp.Compare(a.Name, b.Name) })
	return info, err
}

// holdsLetters reports whether the first message of a topic is a dead letter, and not a letter that was replayed to the
// topic.
func (d *dlq) holdsLetters(ctx context.Context, topic string) (bool, error) {
	letters, err := deadletter.Open(d.client,
		deadletter.Options{Topic: topic, Admin: deadletter.Admin(d.api), Subscription: d.ownSub()})
	if err != nil {
		return false, nil // the topic cannot be opened
	}
	for l, err := range letters.Peek(ctx, 1) {
		if errors.Is(err, deadletter.ErrNoTopic) { // deleted since the namespace was listed
			return false, nil
		}
		if err != nil {
			return false, err
		}
		replayed, died := l.Properties[deadletter.PropertyReplayRun], l.Properties[reconsume.PropertyDeadLetterTime]
		return l.Type+l.Reason+died != "" || replayed == "" && l.Origin+l.OriginID != "", nil
	}
	return false, nil
}
