package deadletter

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/durations"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

const (
	defaultMaxReplays    = 3
	defaultCanaryTimeout = 10 * time.Minute
)

// ReplayOptions configures a Replay.
type ReplayOptions struct {
	// ToOrigin publishes each letter to the topic that it came from, where every subscription gets it. Default: false;
	// then the letters go to the retry topic of the dead letter topic (the same name with -RETRY in place of -DLQ),
	// where only the subscription that they died on gets them. If that retry topic does not exist, each letter goes to
	// the default retry topic of the topic and the subscription that it names: <topic>-<subscription>-RETRY.
	ToOrigin bool
	// Topic is a persistent topic that all letters go to instead. A name without a namespace is in the namespace of the
	// dead letter topic. Default: none.
	Topic string
	// Namespaces are the namespaces, besides the dead letter topic's own, that letters may go back to, each as
	// tenant/namespace. Any publisher can forge the origin of a letter, so name only namespaces whose services use this
	// dead letter topic. Letters of other namespaces are left out, and the error is ErrOtherNamespace. Default: none.
	Namespaces []string
	// Routing chooses partitions. Default: SamePartition.
	Routing Routing
	// Filter chooses the letters. Default: all.
	Filter Filter
	// Edit replaces the payload of one letter. Filter.IDs must have the whole ID of that letter, and no other. Default:
	// none.
	Edit *Edit
	// Max limits how many letters are replayed. Default: 0, no limit.
	Max int
	// MaxReplays is how often a letter may be replayed in total. A letter that was replayed that many times is left
	// out. Default: 3.
	MaxReplays int
	// Rate limits how many letters are replayed in a second. Default: 0, no limit.
	Rate float64
	// Canary is how many letters are replayed as a test before the others. The others wait until each subscription has
	// acknowledged the canary letters that died on it. If a canary letter dies again, the replay ends with ErrPoison.
	// A canary needs an admin API, and must not be more than Max. Default: 0, none.
	Canary int
	// CanaryTimeout is how long Replay waits for the canary. Then Replay returns ErrUnprocessed with the subscription
	// that has not acknowledged the canary. The next Replay with the same options waits again. Default: 10 minutes.
	CanaryTimeout time.Duration
	// Encryption encrypts the messages that Replay publishes. Required if Options.Decryption is set, so that no plain
	// text leaks. Default: none.
	Encryption *pulsar.ProducerEncryptionInfo
	// New begins a new replay although an earlier one is not finished. Letters that the earlier one published but did
	// not acknowledge are published again, and deduplication does not drop them. Default: false.
	New bool
	// DryRun makes Replay change nothing, and report what a replay of the letters that Peek yields would do. Default:
	// false.
	DryRun bool
	// Progress is called after letters were acknowledged, several times a second, and must not block. Default: none.
	Progress func(Report)

	ownRetry bool // the caller set no Topic, so Topic is the retry topic of the dead letter topic
}

// retryTopic returns the name of the dead letter topic with -RETRY in place of -DLQ.
func (t *Topic) retryTopic() string {
	return strings.TrimSuffix(t.o.Topic, pulsar.DlqTopicSuffix) + pulsar.RetryTopicSuffix
}

// Edit is another payload for a letter. The message that is published with it also has PropertyEditedBy and
// PropertyEditedTime. After the replay the old payload is lost; to keep it, export the letter first.
type Edit struct {
	Payload []byte // in the form of the letter's schema, which is not checked
	By      string // who edited it, such as a name or an address
}

func (t *Topic) checked(o ReplayOptions) (ReplayOptions, error) {
	o.MaxReplays = cmp.Or(o.MaxReplays, defaultMaxReplays)
	o.CanaryTimeout = cmp.Or(o.CanaryTimeout, defaultCanaryTimeout)
	switch {
	case o.ToOrigin && o.Topic != "":
		return o, fmt.Errorf("deadletter: ReplayOptions.Topic is %q and ToOrigin is set, want one of them", o.Topic)
	case o.ToOrigin:
	case o.Topic != "" && topicname.Want(o.Topic) != "":
		return o, fmt.Errorf("deadletter: ReplayOptions.Topic is %q, want %s", o.Topic, topicname.Want(o.Topic))
	case !topicname.IsPersistent(o.Topic):
		// a non-persistent topic stores nothing: messages for which its consumers have no room would be lost
		return o, fmt.Errorf("deadletter: ReplayOptions.Topic is %q, want a persistent topic", o.Topic)
	case o.Topic != "":
		o.Topic = topicname.In(t.o.Topic, o.Topic)
	case strings.HasSuffix(t.o.Topic, pulsar.DlqTopicSuffix):
		o.Topic, o.ownRetry = t.retryTopic(), true
	}
	for _, name := range o.Namespaces {
		if strings.Count(name, "/") != 1 || topicname.Want(name+"/any") != "" {
			return o, fmt.Errorf("deadletter: ReplayOptions.Namespaces has %q, want tenant/namespace", name)
		}
	}
	switch {
	case t.isReserved(o.Topic):
		return o, fmt.Errorf("deadletter: ReplayOptions.Topic is %q, want neither the dead letter topic nor a journal",
			o.Topic)
	case o.Max < 0 || o.MaxReplays < 0 || o.Canary < 0:
		return o, fmt.Errorf("deadletter: ReplayOptions.Max, MaxReplays and Canary are %d, %d and %d, want 0 or more",
			o.Max, o.MaxReplays, o.Canary)
	case o.Edit != nil && len(o.Filter.IDs) != 1:
		return o, fmt.Errorf("deadletter: ReplayOptions.Edit is set and Filter.IDs has %d ids, want one",
			len(o.Filter.IDs))
	case durations.Wanted(o.CanaryTimeout, true) != "":
		return o, fmt.Errorf("deadletter: ReplayOptions.CanaryTimeout is %v, want %s", o.CanaryTimeout,
			durations.Wanted(o.CanaryTimeout, true))
	case o.Rate < 0 || math.IsNaN(o.Rate):
		return o, fmt.Errorf("deadletter: ReplayOptions.Rate is %v, want 0 or more", o.Rate)
	case o.Max > 0 && o.Canary > o.Max:
		return o, fmt.Errorf("deadletter: ReplayOptions.Canary is %d, want at most ReplayOptions.Max, which is %d: "+
			"the canary is part of it", o.Canary, o.Max)
	case o.Canary > 0 && t.o.Admin.URL == "":
		return o, fmt.Errorf("deadletter: ReplayOptions.Canary is %d without Options.Admin, want Options.Admin too",
			o.Canary)
	case t.decrypts() && o.Encryption == nil:
		return o, errors.New("deadletter: Options.Decryption is set, want ReplayOptions.Encryption too: else " +
			"encrypted letters would be published as plain text")
	}
	return o, o.Routing.check()
}

// chosen has the options that decide which letters a replay takes and where they go. The journal stores them as JSON.
type chosen struct {
	To         string   `json:"to"`
	Topic      string   `json:"topic,omitempty"`
	Routing    Routing  `json:"routing,omitempty"`
	Filter     Filter   `json:"filter"`
	Max        int      `json:"max,omitempty"`
	MaxReplays int      `json:"maxReplays"`
	Keys       []string `json:"keys,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"`
	Edit       string   `json:"edit,omitempty"` // the hash of the new payload
}

// decisive returns the options that decide about a letter, as JSON. Only a replay with the same decisive options is
// continued.
func (o *ReplayOptions) decisive() json.RawMessage {
	var keys []string
	if o.Encryption != nil {
		keys = o.Encryption.Keys
	}
	to := "retry"
	if o.ToOrigin {
		to = "origin"
	}
	edit := ""
	if o.Edit != nil {
		edit = fmt.Sprintf("%x", sha256.Sum256(o.Edit.Payload))
	}
	filter := o.Filter
	namespaces := o.Namespaces
	for _, names := range []*[]string{&filter.Groups, &filter.IDs, &filter.Keys, &namespaces} {
		*names = slices.Sorted(slices.Values(*names))
	}
	filter.After, filter.Before = filter.After.UTC(), filter.Before.UTC()
	c := chosen{to, o.Topic, o.Routing, filter, o.Max, o.MaxReplays, keys, namespaces, edit}
	data, _ := json.Marshal(c) // cannot fail
	return data
}
