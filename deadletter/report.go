package deadletter

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report counts the letters of a Replay, a Purge or an Import. With DryRun it counts the letters that the call would
// have handled.
type Report struct {
	Run     string `json:"run,omitempty"`     // id of the replay
	Resumed bool   `json:"resumed,omitempty"` // the run began earlier
	Seen    int    `json:"seen"`              // letters seen, including those that the filter does not choose
	Done    int    `json:"done"`              // letters that this call replayed, purged or imported
	// letters of the canary, and copies of them, that are not acknowledged yet
	Waiting int `json:"waiting,omitempty"`
	// the subscription that has to acknowledge the letters of Waiting, with its number of consumers
	WaitsFor string `json:"waitsFor,omitempty"`
	// letters that the filter chooses and that stay in the dead letter topic
	Left []Left `json:"left,omitempty"`
	// letters that the filter chooses and that came too late for the replay, counted up to 10,000
	Arrived int      `json:"arrived,omitempty"`
	Targets []Target `json:"targets,omitempty"` // topics that letters go to
	// Namespaces are the namespaces that ReplayOptions.Namespaces does not allow, each with the number of letters that
	// were left out. If there are more than ten, the others are counted as "".
	Namespaces map[string]int `json:"namespaces,omitempty"`

	// the durable subscription that a dry run would create, or that Import created; needs an admin API
	Creates string `json:"creates,omitempty"`

	noRetry Target // the first missing retry topic, with the number of letters for all missing ones
}

// Left counts letters that stay in the dead letter topic for one reason.
type Left struct {
	Why   string   `json:"why"`   // the reason, the same for all of them
	Count int      `json:"count"` // letters
	IDs   []string `json:"ids"`   // the first ten
}

// Target is a topic that letters go to.
type Target struct {
	Topic string `json:"topic"` // the whole name
	Count int    `json:"count"` // letters
	// the subscriptions that get the messages; needs an admin API
	Subscriptions []string `json:"subscriptions,omitempty"`
	Origins       []string `json:"origins,omitempty"` // the subscriptions that the letters died on

	// Consumers is the number of connected consumers of each subscription; 0 means that none would receive the messages
	// now. It is nil without the admin API, or if the admin API does not say.
	Consumers map[string]int `json:"consumers,omitempty"`
}

const maxNamed = 10

// unchosen is the reason to leave out a letter that the filter does not choose. It is not reported.
const unchosen = "not chosen"

func (r *Report) leave(why string, l *Letter) {
	if why == unchosen || why == "" {
		return
	}
	for i := range r.Left {
		if left := &r.Left[i]; left.Why == why {
			left.Count++
			if len(left.IDs) < maxNamed {
				left.IDs = append(left.IDs, l.ID)
			}
			return
		}
	}
	r.Left = append(r.Left, Left{why, 1, []string{l.ID}})
}

func (r *Report) target(topic string) *Target {
	for i := range r.Targets {
		if r.Targets[i].Topic == topic {
			return &r.Targets[i]
		}
	}
	r.Targets = append(r.Targets, Target{Topic: topic})
	return &r.Targets[len(r.Targets)-1]
}

// clone returns a copy for Progress, which may keep it: later letters do not change the copy. The lists of names are
// shared, since the call only appends to them.
func (r *Report) clone() Report {
	c := *r
	c.Left, c.Targets, c.Namespaces = slices.Clone(r.Left), slices.Clone(r.Targets), maps.Clone(r.Namespaces)
	return c
}

// foreign counts a letter of a namespace that is not allowed.
func (r *Report) foreign(namespace string) {
	if r.Namespaces == nil {
		r.Namespaces = map[string]int{}
	}
	if _, known := r.Namespaces[namespace]; !known && len(r.Namespaces) >= maxNamed {
		namespace = ""
	}
	r.Namespaces[namespace]++
}

// wantsRetry counts a letter without a retry topic to go to.
func (r *Report) wantsRetry(topic string) {
	r.noRetry.Count++
	if r.noRetry.Count == 1 {
		r.noRetry.Topic = topic
	}
}

// missed returns an error if other options would replay letters that were left out.
func (r *Report) missed() error {
	var errs []error
	if len(r.Namespaces) > 0 {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(r.Namespaces)) {
			names = append(names, fmt.Sprintf("%d of %s", r.Namespaces[name], cmp.Or(name, "others")))
		}
		errs = append(errs, fmt.Errorf("%w: %s; ReplayOptions.Namespaces allows them", ErrOtherNamespace,
			strings.Join(names, ", ")))
	}
	if r.noRetry.Count > 0 {
		errs = append(errs, fmt.Errorf("%w: %s; letters that were left out, since their retry topic is missing: %d; %s",
			ErrNoTopic, r.noRetry.Topic,
			r.noRetry.Count, noRetryTopic))
	}
	return errors.Join(errs...)
}
