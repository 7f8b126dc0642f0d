package deadletter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/causes"
)

// Group is the letters of one subscription of one topic that died of the same cause: the same type of error, and the
// same reason except for numbers and ids.
type Group struct {
	ID           string    `json:"id"`                     // for Filter.Groups
	Type         string    `json:"type,omitempty"`         // of the error
	Reason       string    `json:"reason,omitempty"`       // numbers and ids are masked
	Origin       string    `json:"origin,omitempty"`       // the topic that the letters came from
	Subscription string    `json:"subscription,omitempty"` // the subscription that they died on
	Count        int       `json:"count"`                  // letters
	First        time.Time `json:"first"`                  // when the first letter died
	Last         time.Time `json:"last"`                   // when the last letter died
	Example      string    `json:"example"`                // the id of a letter
}

// maxGroups limits memory. Letters of further causes are counted as one group, whose ID is empty.
const maxGroups = 1000

// Grouping counts letters by their cause, for a program that reads them with Peek and needs more than Groups returns.
// The zero value has no letters. It must not be used concurrently.
type Grouping struct{ groups map[string]*Group }

// Add counts a letter and returns its group, which later calls may change. If there are more than 1,000 causes, the
// letters of the further ones are in one group, whose ID is empty.
func (x *Grouping) Add(l *Letter) *Group {
	id := l.Group()
	g := x.groups[id]
	if g == nil {
		g = &Group{ID: id, Type: strings.Clone(l.Type), Reason: causes.Mask(l.Reason), Origin: strings.Clone(l.Origin),
			Subscription: strings.Clone(l.Subscription), First: l.Died, Example: l.ID}
		if len(x.groups) >= maxGroups {
			g = x.groups[""]
			if g == nil {
				g = &Group{Reason: "all further groups", First: l.Died, Example: l.ID}
			}
		}
		if x.groups == nil {
			x.groups = map[string]*Group{}
		}
		x.groups[g.ID] = g
	}
	g.Count++
	if l.Died.Before(g.First) {
		g.First = l.Died
	}
	if l.Died.After(g.Last) {
		g.Last = l.Died
	}
	return g
}

// Groups returns the groups, the largest first.
func (x *Grouping) Groups() []*Group {
	return slices.SortedFunc(maps.Values(x.groups), func(a, b *Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
	})
}

// Groups returns the groups of the letters that filter chooses, the largest first. It acknowledges no letter.
func (t *Topic) Groups(ctx context.Context, filter Filter) ([]Group, error) {
	var by Grouping
	for l, err := range t.Peek(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if filter.Match(&l) {
			by.Add(&l)
		}
	}
	all := make([]Group, 0, len(by.groups))
	for _, g := range by.Groups() {
		all = append(all, *g)
	}
	return all, nil
}

// Group returns the id of the group that l is in.
func (l *Letter) Group() string {
	h := sha256.New()
	for _, part := range []string{l.Type, causes.Mask(l.Reason), l.Origin, l.Subscription} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)[:5])
}
