package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// visit is one examination. It requests each path once.
type visit struct {
	Setup
	ctx         context.Context
	api         admin.API
	answers     map[string]answer // by path
	read        []topicPolicy     // those that the current check has read
	unreachable bool              // the admin API does not answer
	silent      bool              // the broker does not answer
}

type answer struct {
	body []byte
	err  error
}

func newVisit(ctx context.Context, s Setup) *visit {
	s.Topic = topicname.Base(topicname.Full(s.Topic))
	for _, topic := range []*string{&s.RetryTopic, &s.DeadLetterTopic} {
		if *topic != "" {
			*topic = topicname.In(s.Topic, *topic)
		}
	}
	if s.Policy.Nack == nil {
		s.Policy.Nack = backoff.Fixed(nack.DefaultDelay)
	}
	if s.Policy.Reconsume == nil {
		s.Policy.Reconsume, _ = backoff.ParseDelayLevels(backoff.DefaultDelayLevels)
	}
	s.Policy.MemoryLimit = max(0, cmp.Or(s.Policy.MemoryLimit, 16<<20))
	s.Consumer.ReceiverQueueSize = cmp.Or(s.Consumer.ReceiverQueueSize, 1000)
	s.Consumer.KeepAliveInterval = cmp.Or(s.Consumer.KeepAliveInterval, 30*time.Second)
	s.Load.Failing = cmp.Or(s.Load.Failing, 0.01)
	s.Patience = cmp.Or(s.Patience, 3*time.Second)
	return &visit{Setup: s, ctx: ctx, api: admin.API(s.Admin), answers: map[string]answer{}}
}

// get decodes the answer at a path below /admin/v2 into a value. If the answer is empty, it does not change the value.
func (v *visit) get(path string, into any) error {
	a, asked := v.answers[path]
	if !asked && v.unreachable {
		return errUnreachable
	}
	if !asked {
		a.err = v.api.Call(v.ctx, http.MethodGet, path, nil, &a.body)
		v.answers[path] = a
	}
	if a.err != nil || len(a.body) == 0 {
		return a.err
	}
	if text, ok := into.(*string); ok {
		*text = strings.Trim(string(a.body), "\"\n")
		return nil
	}
	return json.Unmarshal(a.body, into)
}

// errUnreachable is the error of every request after the check reachable got no answer from the admin API. Each request
// would take half a minute.
var errUnreachable = errors.New("the admin API does not answer")

// unknown returns a verdict that says why something could not be looked up.
func unknown(err error) verdict {
	var refused *admin.Error
	if !errors.As(err, &refused) {
		return verdict{Unknown, err.Error()}
	}
	path, _, _ := strings.Cut(refused.Path, "?")
	switch refused.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return verdict{Unknown, fmt.Sprintf("no right to read %s (%d)", path, refused.Status)}
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return verdict{Unknown, "this broker does not show " + path}
	}
	return verdict{Unknown, refused.Error()}
}

// errNoTopic says that there is no such topic.
var errNoTopic = errors.New("no such topic")

// partitions returns how many partitions a topic has; 0 if it is not partitioned.
func (v *visit) partitions(topic string) (int, error) {
	var metadata struct{ Partitions int }
	err := v.get(admin.Topic(topic)+"/partitions?checkAllowAutoCreation=false", &metadata)
	if admin.NotFound(err) {
		return 0, errNoTopic
	}
	return metadata.Partitions, err
}

// exists reports whether a topic exists.
func (v *visit) exists(topic string) (bool, error) {
	n, err := v.partitions(topic)
	if err == nil && n == 0 { // old brokers also answer 0 for a topic that does not exist
		_, err = v.stats(topic)
	}
	if errors.Is(err, errNoTopic) {
		return false, nil
	}
	return err == nil, err
}

// retry returns the retry topic, which need not exist yet if the setup names it; "" if there is none.
func (v *visit) retry() string {
	return v.companion(v.RetryTopic, topicname.Retry(v.Topic, v.Subscription))
}

// dead returns the dead letter topic, which need not exist yet if the setup names it; "" if there is none.
func (v *visit) dead() string {
	return v.companion(v.DeadLetterTopic, topicname.DeadLetter(v.Topic, v.Subscription))
}

// companion returns the configured topic or, if there is none, the topic byDefault if that exists.
func (v *visit) companion(configured, byDefault string) string {
	if configured != "" || v.api.URL == "" {
		return configured
	}
	if found, err := v.exists(byDefault); !found || err != nil {
		return ""
	}
	return byDefault
}

// existing returns the given topics that exist.
func (v *visit) existing(topics ...string) (all []string, err error) {
	for _, topic := range topics {
		if topic == "" {
			continue
		}
		found, err := v.exists(topic)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, topic)
		}
	}
	return all, nil
}

// besideOwn returns the function look of a check that compares existing retry and dead letter topics with v.Topic.
func besideOwn(look func(v *visit, topics []string) verdict) func(*visit) verdict {
	return func(v *visit) verdict {
		topics, err := v.existing(v.retry(), v.dead())
		switch {
		case err != nil:
			return unknown(err)
		case len(topics) == 0:
			return verdict{}
		}
		return look(v, topics)
	}
}

// namespaceOf returns the tenant and namespace of a topic.
func namespaceOf(topic string) string {
	_, rest, _ := strings.Cut(topic, "://")
	parts := strings.SplitN(rest, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// local returns a topic's name without its namespace, for people.
func local(topic string) string { return topic[strings.LastIndex(topic, "/")+1:] }

// fill replaces {topic} and the like in a remedy with names of the setup.
func (v *visit) fill(remedy string) string {
	for name, value := range map[string]func() string{
		"{topic}":        func() string { return v.Topic },
		"{subscription}": func() string { return v.Subscription },
		"{namespace}":    v.namespaces,
		"{retry}":        func() string { return cmp.Or(v.retry(), topicname.Retry(v.Topic, v.Subscription)) },
		"{dead}":         func() string { return cmp.Or(v.dead(), topicname.DeadLetter(v.Topic, v.Subscription)) },
		"{ttl}":          func() string { return seconds(max(add(v.longest(), v.longest()), v.Policy.DeadBeforeTTL)) },
		"{milliseconds}": func() string { return fmt.Sprint(v.longest().Milliseconds()) },
		"{drain}":        func() string { return fmt.Sprint(v.gracePeriod()) },
	} {
		if strings.Contains(remedy, name) {
			remedy = strings.ReplaceAll(remedy, name, value())
		}
	}
	return remedy
}

// namespaces returns the namespaces of the topics whose policies the current check has read, or else that of the topic.
func (v *visit) namespaces() string {
	var names []string
	for _, p := range v.read {
		if name := namespaceOf(p.topic); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return cmp.Or(strings.Join(names, " or "), namespaceOf(v.Topic))
}

// overridden returns what to add to a remedy that changes a namespace: how to remove the topics' own policies, which
// come before those of the namespace.
func (v *visit) overridden(remedy string) (more string) {
	if !strings.Contains(remedy, "pulsar-admin namespaces ") {
		return ""
	}
	for _, p := range v.read {
		if p.isSet(v) {
			more += fmt.Sprintf("; first pulsar-admin topicPolicies remove-%s %s, since the topic has its own policy",
				p.name, p.topic)
		}
	}
	return more
}

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int64((d+time.Second-1)/time.Second)) }
