package doctor

import (
	"maps"
	"slices"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// stats has the statistics of a topic that checks read.
type stats struct {
	MsgRateIn      float64
	AverageMsgSize float64
	BacklogSize    int64
	Subscriptions  admin.Subscriptions[subscription]
	Partitions     map[string]stats
}

type subscription struct {
	Type                             string
	IsDurable                        *bool
	MsgBacklog, MsgDelayed           int
	UnackedMessages, MsgOutCounter   int
	BlockedSubscriptionOnUnackedMsgs bool
	EarliestMsgPublishTimeInBacklog  int64

	NonContiguousDeletedMessagesRanges int
	Consumers                          []consumer
}

type consumer struct {
	ConsumerName, ClientVersion, Address string
	AvailablePermits, UnackedMessages    int
	AvgMessagesPerEntry, MsgOutCounter   int
	BlockedConsumerOnUnackedMsgs         bool
}

// oldest returns the age of the first message of the backlog; 0 if it is not known.
func (s subscription) oldest() time.Duration {
	if s.EarliestMsgPublishTimeInBacklog <= 0 || s.MsgBacklog == 0 {
		return 0
	}
	return time.Since(time.UnixMilli(s.EarliestMsgPublishTimeInBacklog))
}

// stats returns the statistics of a topic, with those of its partitions.
func (v *visit) stats(topic string) (*stats, error) {
	n, err := v.partitions(topic)
	if err != nil {
		return nil, err
	}
	path := "/stats"
	if n > 0 {
		path = "/partitioned-stats"
	}
	s := &stats{}
	err = v.get(admin.Topic(topic)+path+"?perPartition=true&getPreciseBacklog=true&getEarliestTimeInBacklog=true", s)
	if admin.NotFound(err) {
		err = errNoTopic
	}
	return s, err
}

// statsAgain waits for Patience, and then reads the statistics once more.
func (v *visit) statsAgain(topic string) (*stats, error) {
	select {
	case <-time.After(v.Patience):
	case <-v.ctx.Done():
		return nil, v.ctx.Err()
	}
	later := &visit{Setup: v.Setup, ctx: v.ctx, api: v.api, answers: map[string]answer{}}
	return later.stats(topic)
}

// parts returns the statistics of each partition by its name, or those of the topic if it has no partitions.
func (s *stats) parts(topic string) map[string]stats {
	if len(s.Partitions) > 0 {
		return s.Partitions
	}
	return map[string]stats{topic: *s}
}

// subscription returns the statistics of the subscription; false if it does not exist.
func (v *visit) subscription() (subscription, bool, error) {
	s, err := v.stats(v.Topic)
	if err != nil {
		return subscription{}, false, err
	}
	sub, found := s.Subscriptions[v.Subscription]
	for _, part := range s.Partitions { // a partition without consumers may make the type of the whole topic None
		if one := part.Subscriptions[v.Subscription]; len(one.Consumers) > 0 {
			sub.Type = one.Type
		}
	}
	if sub.Type == "None" { // the type is not known before the first consumer subscribes
		sub.Type = ""
	}
	return sub, found, nil
}

// instances returns how many consumers the subscription has. A consumer of several partitions counts once.
func (v *visit) instances() int {
	if v.Load.Instances > 0 || v.api.URL == "" {
		return v.Load.Instances
	}
	s, err := v.stats(v.Topic)
	if err != nil {
		return 0
	}
	names := map[string]bool{}
	for _, part := range s.parts(v.Topic) {
		for _, c := range part.Subscriptions[v.Subscription].Consumers {
			names[c.ConsumerName] = true
		}
	}
	return len(names)
}

// messagesPerEntry returns how many messages producers put into a batch on average: 1 if they do not batch, 0 if no
// connected consumer has got a message yet.
func (v *visit) messagesPerEntry() int {
	n := 0
	if s, err := v.stats(v.Topic); err == nil {
		for _, part := range s.parts(v.Topic) {
			for _, sub := range part.Subscriptions {
				for _, c := range sub.Consumers {
					n = max(n, c.AvgMessagesPerEntry)
				}
			}
		}
	}
	return n
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// typeOf returns the subscription's type: the one in the options or, if they have none, the broker's.
func (v *visit) typeOf() string {
	if v.Type != "" || v.api.URL == "" {
		return v.Type
	}
	sub, _, err := v.subscription()
	if err != nil {
		return ""
	}
	return sub.Type
}

// delays reports whether the broker delays messages on the subscription. Only then does it also count unacknowledged
// messages.
func (v *visit) delays() bool { return v.typeOf() != "Exclusive" && v.typeOf() != "Failover" }
