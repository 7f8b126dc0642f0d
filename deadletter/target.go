package deadletter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// maxTargets limits the number of producers, and the harm that letters with forged properties can do.
const maxTargets = 100

// directed decides to which retry topic a replay publishes: that of the dead letter topic, or the one that each letter
// names. An unfinished run keeps its decision.
func (t *Topic) directed(ctx context.Context, o ReplayOptions, unfinished *run) (ReplayOptions, error) {
	if !o.ownRetry || t.o.Admin.URL == "" {
		return o, nil
	}
	named := o
	named.Topic = ""
	if unfinished != nil && !o.New {
		if bytes.Equal(unfinished.Options, named.decisive()) {
			return named, nil
		}
		return o, nil
	}
	_, err := t.subscriptions(ctx, o.Topic)
	if errors.Is(err, ErrNoTopic) {
		return named, nil
	}
	return o, err
}

// maxName is more bytes than any real topic name has. With a longer name, escaped, a request to the admin API may
// exceed the 8 KiB that Pulsar reads. Pulsar would then reset the connection.
const maxName = 2 << 10

// back returns the topic to which a letter goes back: its origin, or the default retry topic of its origin and its
// subscription. If there is none, back returns why the letter is left out. The topic must be in an allowed namespace,
// since any publisher can forge a letter's properties.
func (t *Topic) back(o *ReplayOptions, l *Letter, r *Report) (topic, left string) {
	if !o.ToOrigin && (l.Origin == "" || l.Subscription == "") {
		r.wantsRetry(t.retryTopic())
		return "", "does not say which topic and subscription it died on"
	}
	if l.Origin == "" {
		return "", "does not say where it came from"
	}
	origin := topicname.Full(l.Origin)
	topic = origin
	if !o.ToOrigin {
		topic += "-" + l.Subscription + pulsar.RetryTopicSuffix
	}
	switch name := namespace(origin); {
	case !strings.HasPrefix(origin, topicname.Persistent):
		return "", "came from a topic that is not persistent"
	case name != namespace(t.o.Topic) && !slices.Contains(o.Namespaces, name):
		r.foreign(name)
		return "", "came from another namespace"
	case namespace(topic) != name, len(topic) > maxName: // the subscription's name has a slash
		return "", "has an origin that is no topic name"
	case t.isReserved(origin) || t.isReserved(topic):
		return "", "came from this topic, or from a journal"
	case isInternal(origin) || isInternal(topic):
		return "", "came from a topic that is Pulsar's own, or a log of attempts"
	}
	return topic, ""
}

// topicFor returns the topic to which a letter goes, or why there is none. It creates nothing.
func (t *Topic) topicFor(ctx context.Context, o *ReplayOptions, l *Letter, r *Report) (topic, left string, err error) {
	topic = o.Topic
	if topic == "" {
		topic, left = t.back(o, l, r)
		if left != "" {
			return "", left, nil
		}
	}
	known := slices.ContainsFunc(r.Targets, func(g Target) bool { return g.Topic == topic })
	if !known && len(r.Targets) >= maxTargets {
		return "", fmt.Sprintf("came from more than %d topics", maxTargets), nil
	}
	if !known {
		names, err := t.subscriptions(ctx, topic)
		switch {
		case errors.Is(err, ErrNoTopic) && o.ToOrigin:
			return "", topicGone, nil
		case isNoName(err) && o.Topic == "":
			return "", "has an origin that is no topic name", nil
		case errors.Is(err, ErrNoTopic) && o.Topic == "":
			r.wantsRetry(topic)
			return "", retryGone, nil
		case errors.Is(err, ErrNoTopic) && strings.HasSuffix(topic, pulsar.RetryTopicSuffix):
			return "", "", fmt.Errorf("%w: %s", err, noRetryTopic)
		case err != nil:
			return "", "", err
		case t.o.Admin.URL != "" && len(names) == 0:
			return "", "", fmt.Errorf("%w: %s has no subscription", ErrNoSubscription, topic)
		}
		g := r.target(topic)
		g.Subscriptions, g.Consumers = names, t.consumers(ctx, topic)
	}
	g := r.target(topic)
	if l.Subscription != "" && !slices.Contains(g.Origins, l.Subscription) && len(g.Origins) < maxTargets {
		g.Origins = append(g.Origins, l.Subscription)
	}
	return topic, "", nil
}

// isNoName reports whether the admin API refuses the name of a topic itself, such as a name with a NUL or with
// thousands of characters.
func isNoName(err error) bool {
	return slices.ContainsFunc([]int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusPreconditionFailed,
		http.StatusRequestURITooLong},
		func(status int) bool { return admin.HasStatus(err, status) })
}

// isReserved reports whether a topic is the dead letter topic or a journal, to which nothing is replayed.
func (t *Topic) isReserved(topic string) bool {
	topic = topicname.Base(topic)
	return topic == t.o.Topic || topic == t.journalTopic() ||
		strings.HasSuffix(topic, pulsar.DlqTopicSuffix+"-"+defaultSubscription)
}

// isInternal reports whether a topic is Pulsar's own or a log of attempts. Names of Pulsar's own topics begin with two
// underscores. In a log of attempts a letter could be taken for a record.
func isInternal(topic string) bool {
	return strings.HasPrefix(topic[strings.LastIndex(topic, "/")+1:], "__") ||
		strings.HasSuffix(topicname.Base(topic), topicname.AttemptsSuffix)
}

// keeper returns the subscription that the producer creates, or "" for none. If the topic is deleted during the replay,
// the producer creates it again with this subscription. Without an admin API it is unknown whether the subscription
// exists, so the producer always creates it.
func (t *Topic) keeper(topic string, l *Letter, r *Report) (string, error) {
	names := r.target(topic).Subscriptions
	switch {
	case len(names) > 0 && !slices.Contains(names, l.Subscription):
		return "", nil // an existing subscription may be a reader's, which is temporary
	case l.Subscription == "":
		return "", fmt.Errorf("%w: letter %s does not say which subscription of %s it is for, and there is no admin "+
			"API to ask", ErrNoSubscription, l.ID, topic)
	}
	return l.Subscription, nil
}

// check returns why a letter is left out or, if it is not left out, the schema with which it is published.
func (t *Topic) check(ctx context.Context, o *ReplayOptions, l *Letter) (left string, schema pulsar.Schema,
	err error) {
	switch {
	case !o.Filter.Match(l), o.Edit != nil && l.ID != o.Filter.IDs[0]: // an Edit needs the whole ID
		return unchosen, nil, nil
	case l.Replays >= o.MaxReplays:
		return fmt.Sprintf("was replayed %d times or more", o.MaxReplays), nil, nil
	case l.Encrypted && t.decrypts():
		return unreadable, nil, nil
	case l.Encrypted:
		return encrypted, nil, nil
	case l.pos.Entry >= 1<<43 || l.pos.Index >= 1<<20:
		return "has an id that is too large", nil, nil
	}
	return t.schemaOf(ctx, l)
}

// schemaOf returns the schema with which a letter is published; nil for none. left says why the letter cannot be
// published, if so.
func (t *Topic) schemaOf(ctx context.Context, l *Letter) (left string, schema pulsar.Schema, err error) {
	switch {
	case l.Schema == "":
		return "", nil, nil
	case t.o.Admin.URL == "":
		return "has a schema: needs the admin API", nil, nil
	}
	s, err := t.schemas.Find(ctx, l.Schema)
	switch {
	case err != nil:
		return "", nil, err
	case s == nil:
		return "has a schema that is gone", nil, nil
	case s.Type == "NONE" || s.Type == "BYTES":
		return "", nil, nil
	}
	schema = rawSchema(s)
	if schema == nil {
		return "has a schema of a type that cannot be published", nil, nil
	}
	return "", schema, nil
}

const noRetryTopic = "consumers with RetryEnable have a retry topic; letters can also be replayed to the topic that " +
	"they came from"

const (
	unreadable = "is encrypted with another key"
	encrypted  = "is encrypted: needs keys to decrypt and encrypt it"
	topicGone  = "came from a topic that is gone"
	retryGone  = "has no retry topic to go to"

	tooLarge       = "is larger than its topic allows"
	refusedSchema  = "has a schema that its topic does not take"
	topicEnded     = "goes to a topic that is terminated"
	topicForbidden = "goes to a topic that refuses this tool's role"

	sealed         = "is encrypted: without keys, its export could not be read"
	notText        = "has a key or a property that is not UTF-8, which JSON cannot have"
	wasEncrypted   = "was encrypted: needs keys to encrypt it again"
	otherSchema    = "has a schema of another topic"
	unreadableLine = "is encrypted, and was exported without keys"
)

// curable has the reasons that may not hold at the next replay, since keys, policies and topics change.
var curable = []string{unreadable, encrypted, topicGone, retryGone, tooLarge, refusedSchema, topicEnded, topicForbidden}

func (t *Topic) decrypts() bool { return t.o.Decryption.KeyReader != nil }
