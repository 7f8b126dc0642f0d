package history

import (
	"encoding/json"
	"time"
)

// Fault is a kind of finding.
type Fault string

// The faults that a Checker finds.
const (
	Lost       Fault = "lost"         // neither acknowledged nor a dead letter, and the broker has nothing left
	Stuck      Fault = "stuck"        // due for longer than Rules.Patience without a delivery
	Early      Fault = "early"        // delivered before its delay was over
	Duplicated Fault = "duplicated"   // delivered after it was acknowledged or a dead letter
	Disorder   Fault = "out of order" // first delivered after a later message of its key
	Miscounted Fault = "miscounted"   // the redelivery count does not fit the failures
	Letters    Fault = "letters"      // two dead letters of a message, or one of an acknowledged message
)

// Faults are all faults, in the order of docs/history.md.
var Faults = []Fault{Lost, Stuck, Early, Duplicated, Disorder, Miscounted, Letters}

// Finding is a broken promise with the fewest lines that show it.
type Finding struct {
	Fault   Fault
	Message string
	Text    string
	Lines   []*Line
}

// MarshalJSON writes each line with its place.
func (f Finding) MarshalJSON() ([]byte, error) {
	type placed struct {
		File  string `json:"file"`
		Line  int    `json:"line"`
		Event Event  `json:"event"`
	}
	lines := make([]placed, len(f.Lines))
	for i, l := range f.Lines {
		lines[i] = placed{l.File, l.Number, l.Event}
	}
	return json.Marshal(struct {
		Fault   Fault    `json:"fault"`
		Message string   `json:"message"`
		Text    string   `json:"text"`
		Lines   []placed `json:"lines"`
	}{f.Fault, f.Message, f.Text, lines})
}

// Summary counts the events of a history.
type Summary struct {
	Messages   int `json:"messages"`
	Deliveries int `json:"deliveries"`
	Failures   int `json:"failures"` // nacked, snoozed and reconsumed
	Settled    int `json:"settled"`  // messages that are acknowledged or dead letters
	Letters    int `json:"letters"`
	Doubles    int `json:"doubles"` // deliveries of settled messages, excused ones too
	// failures that the next count does not include because their consumer was gone
	Forgotten int `json:"forgotten"`
	// messages that are neither settled nor, as far as the history shows, lost
	Unfinished int `json:"unfinished"`
	Faults     int `json:"faults"` // lost connections and killed consumers
	// longest wait for a message, from its due time or, if that was later, from the last fault
	Longest time.Duration `json:"-"`
}

// Rules say what the client promises, and for how long a fault excuses it.
type Rules struct {
	// Window is the time before a lost connection or a kill in which an acknowledgement may be lost, or a copy may be
	// on its way to another consumer. A link may be dead for some keep-alive intervals before the client notices. 0
	// means DefaultWindow.
	Window time.Duration

	// Patience is how long a due message may wait for a consumer. 0 means DefaultPatience.
	Patience time.Duration

	// Durable says that counts and delays outlive a consumer, as with redelivery.WithAttemptLog. Without it, they may
	// start again after a fault.
	Durable bool

	// Serial says that a message is handled after all earlier messages of its key.
	Serial bool

	// MaxDeliveries is how often a message may be delivered; 0 for no limit.
	MaxDeliveries int
}

// Defaults of Rules: pulsar-client-go notices a dead link after two or three keep-alive intervals of 30 s, and waits up
// to a minute before it connects again.
const (
	DefaultWindow   = 2 * time.Minute
	DefaultPatience = 75 * time.Second
)
