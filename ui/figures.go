package ui

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// figures is the content of the overview.
type figures struct {
	At   time.Time
	Subs []subscriptionFigures
	Dead []deadFigures
	More int // topics that are not shown
}

// subscriptionFigures are the figures of one subscription of one topic, and of its retry topic and dead letter topic.
type subscriptionFigures struct {
	Topic, Name, Type string
	Consumers         int
	Backlog, Unacked  int
	Delayed           int
	RateIn, RateOut   float64
	Redelivered       float64 // a second
	Oldest            time.Time
	HasRetry          bool
	Retry             int // entries in the backlog of the retry topic
	Dead              int // as deadFigures.Letters
	DeadTopic         string
	Service           *serviceFigures
	DeadLost          bool // the dead letter topic has no subscription
}

// serviceFigures are the figures of the consumers and workers of this process.
type serviceFigures struct {
	Waiting, Ready, InFlight, Stuck int
	Outage, Paused, Blocked         bool
	Reconnecting                    int
	Oldest                          time.Duration
	Succeeded, Failed               uint64
	Redelivered, Late               uint64  // Late messages came over a second after they were due
	Rate                            float64 // messages handled a second, since the previous figures
	Held                            int     // bytes of messages in memory
	HasWorker                       bool
}

// deadFigures are the figures of a dead letter topic.
type deadFigures struct {
	Topic         string
	Letters       int // entries in the largest backlog of a subscription
	Rate          float64
	Oldest        time.Time
	Subscriptions []string
}

// topics returns the topics to show, and the dead letter topics that are recognized by their names.
func (h *Handler) topics(ctx context.Context) (work, dead []string, err error) {
	work = slices.Clone(h.o.Topics)
	if len(work) == 0 {
		for _, s := range h.o.Services {
			work = append(work, s.Consumer.Options().Topics...)
		}
	}
	if len(work) == 0 {
		return h.topicNames(ctx)
	}
	for i := range work {
		work[i] = topicname.Base(topicname.Full(work[i]))
	}
	dead = slices.DeleteFunc(slices.Clone(work),
		func(t string) bool { return !strings.HasSuffix(t, pulsar.DlqTopicSuffix) })
	work = slices.DeleteFunc(work, func(t string) bool { return strings.HasSuffix(t, pulsar.DlqTopicSuffix) })
	slices.Sort(work)
	return slices.Compact(work), dead, nil
}

// figures asks the broker for the figures of all topics.
func (h *Handler) figures(ctx context.Context) (*figures, error) {
	work, dead, err := h.topics(ctx)
	if err != nil {
		return nil, err
	}
	f := &figures{At: time.Now()}
	if f.More = max(len(work)-maxTopics, 0); f.More > 0 {
		work = work[:maxTopics]
	}
	all := h.statsOf(ctx, slices.Concat(work, dead))
	for _, topic := range work {
		if s := all[topic]; s.err != nil && !admin.NotFound(s.err) {
			return nil, s.err
		}
	}
	var also []string // retry and dead letter topics
	for _, topic := range work {
		for name := range all[topic].Subscriptions {
			if h.o.Subscription == "" || name == h.o.Subscription {
				retry, letters := h.companions(topic, name)
				also = append(also, retry, letters)
			}
		}
	}
	also = slices.DeleteFunc(also, func(topic string) bool { _, known := all[topic]; return known })
	maps.Copy(all, h.statsOf(ctx, also))
	shown := map[string]bool{}
	for _, topic := range work {
		for name, s := range all[topic].Subscriptions {
			if h.o.Subscription != "" && name != h.o.Subscription {
				continue
			}
			retryTopic, deadTopic := h.companions(topic, name)
			sub := subscriptionFigures{Topic: topic, Name: name, Type: s.Type, Consumers: consumersOf(s.Consumers),
				Backlog: s.MsgBacklog, Unacked: s.UnackedMessages,
				Delayed: s.MsgDelayed, RateIn: all[topic].MsgRateIn, RateOut: s.MsgRateOut,
				Redelivered: s.MsgRateRedeliver, Service: h.serviceFigures(topic, name)}
			if s.EarliestMsgPublishTimeInBacklog > 0 && s.MsgBacklog > 0 {
				sub.Oldest = time.UnixMilli(s.EarliestMsgPublishTimeInBacklog)
			}
			if retry := all[retryTopic]; retry.err == nil {
				sub.HasRetry = true
				sub.Retry = retry.Subscriptions[name].MsgBacklog
			}
			if letters := all[deadTopic]; letters.err == nil {
				of := deadOf(deadTopic, letters)
				sub.Dead, sub.DeadTopic = of.Letters, of.Topic
				sub.DeadLost = len(of.Subscriptions) == 0
				if !shown[of.Topic] {
					f.Dead = append(f.Dead, of)
				}
				shown[of.Topic] = true
			}
			f.Subs = append(f.Subs, sub)
		}
	}
	for _, topic := range dead {
		if s := all[topic]; s.err == nil && !shown[topic] {
			f.Dead = append(f.Dead, deadOf(topic, s))
		}
	}
	slices.SortFunc(f.Subs, func(a, b subscriptionFigures) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.Dead, func(a, b deadFigures) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Topic, b.Topic))
	})
	return f, nil
}

func deadOf(topic string, s answer) deadFigures {
	d := deadFigures{Topic: topic, Rate: s.MsgRateIn}
	for name, of := range s.Subscriptions {
		d.Subscriptions = append(d.Subscriptions, name)
		d.Letters = max(d.Letters, of.MsgBacklog)
		if ms := of.EarliestMsgPublishTimeInBacklog; ms > 0 && of.MsgBacklog > 0 &&
			(d.Oldest.IsZero() || time.UnixMilli(ms).Before(d.Oldest)) {
			d.Oldest = time.UnixMilli(ms)
		}
	}
	slices.Sort(d.Subscriptions)
	return d
}

// answer has the statistics of a topic, or the error that says why there are none.
type answer struct {
	topicStats
	err error
}

// statsOf asks the broker for the statistics of topics, of several at a time.
func (h *Handler) statsOf(ctx context.Context, topics []string) map[string]answer {
	topics = slices.Compact(slices.Sorted(slices.Values(topics)))
	all := make(map[string]answer, len(topics))
	var mu sync.Mutex
	var done sync.WaitGroup
	room := make(chan struct{}, pollers)
	for _, topic := range topics {
		room <- struct{}{}
		done.Go(func() {
			defer func() { <-room }()
			s, err := h.stats(ctx, topic)
			mu.Lock()
			defer mu.Unlock()
			all[topic] = answer{s, err}
		})
	}
	done.Wait()
	return all
}

// consumes reports whether s consumes a topic on a subscription. A consumer with a pattern may consume any topic.
func (s Service) consumes(topic, subscription string) bool {
	topics := s.Consumer.Options().Topics
	return s.Consumer.Subscription() == subscription &&
		(len(topics) == 0 || slices.ContainsFunc(topics, func(t string) bool { return topicname.Same(t, topic) }))
}

// rates sets the rates of the services by comparison with older figures.
func (f *figures) rates(old *figures) {
	if old == nil || !f.At.After(old.At) {
		return
	}
	before := map[[2]string]*serviceFigures{}
	for _, s := range old.Subs {
		before[[2]string{s.Topic, s.Name}] = s.Service
	}
	for _, s := range f.Subs {
		if b := before[[2]string{s.Topic, s.Name}]; b != nil && s.Service != nil {
			n := s.Service.Succeeded + s.Service.Failed - b.Succeeded - b.Failed
			s.Service.Rate = float64(n) / f.At.Sub(old.At).Seconds()
		}
	}
}

// serviceFigures returns the figures of the services that consume the subscription.
func (h *Handler) serviceFigures(topic, subscription string) *serviceFigures {
	var f *serviceFigures
	for _, s := range h.o.Services {
		if !s.consumes(topic, subscription) {
			continue
		}
		if f == nil {
			f = &serviceFigures{}
		}
		st := s.Consumer.Stats()
		f.Waiting += st.Waiting
		f.Ready += st.Ready
		f.Blocked = f.Blocked || st.Blocked
		f.Reconnecting += st.Reconnecting
		f.Held += int(st.BufferedBytes)
		f.Redelivered += st.Redelivered
		f.Late += st.Late
		f.Oldest = max(f.Oldest, st.OldestWaiting.Truncate(time.Second))
		if s.Worker != nil {
			w := s.Worker.Stats()
			f.HasWorker = true
			f.InFlight += w.InFlight
			f.Stuck += w.Stuck
			f.Outage, f.Paused = f.Outage || w.Outage, f.Paused || w.Paused
			f.Succeeded += w.Succeeded
			f.Failed += w.Failed
		}
	}
	return f
}
