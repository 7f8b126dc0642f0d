// Package exploretest plays every short history of a small world, and removes rules from the code to check that a test
// notices. The tests of packages internal/partition and attempts do both.
package exploretest

import (
	"fmt"
	"slices"
	"strings"
)

// World describes a world in which anything can happen, in steps of type S. Check and Complete return the promise that
// is broken, or "".
type World[W, S any] struct {
	New      func() W
	Steps    func(W) []S    // returns the possible next steps
	Do       func(W, S)     // does a step
	Check    func(W) string // checks the world after a step
	Complete func(W) string // continues fairly until everything is over
	Hash     func(W) uint64 // returns a number of the state; equal states have the same future
}

// Exploration is the result of Explore.
type Exploration[S any] struct {
	States int // number of states met
	Found  []S // a history that breaks a promise; nil if none does
	Fault  string
}

func (x *Exploration[S]) String() string {
	var b strings.Builder
	for _, s := range x.Found {
		fmt.Fprintf(&b, "\n  %v", s)
	}
	return x.Fault + b.String()
}

// Explore plays all histories that begin with prefix and go on for up to depth steps, the shortest first. If several
// histories lead to the same state, it continues only one of them. It ends with the first history that breaks a
// promise.
func Explore[W, S any](w World[W, S], prefix []S, depth int) *Exploration[S] {
	met := map[uint64]struct{}{w.Hash(w.New()): {}}
	level := [][]S{prefix}
	for range depth {
		var next [][]S
		for _, path := range level {
			for _, s := range w.Steps(w.play(path)) {
				reached, longer := w.play(path), append(slices.Clip(path), s)
				w.Do(reached, s)
				if fault := w.Check(reached); fault != "" {
					return &Exploration[S]{len(met), longer, fault}
				}
				h := w.Hash(reached)
				if _, isMet := met[h]; isMet {
					continue
				}
				met[h] = struct{}{}
				next = append(next, longer)
				if fault := w.Complete(reached); fault != "" {
					return &Exploration[S]{len(met), longer, "in the end: " + fault}
				}
			}
		}
		level = next
	}
	return &Exploration[S]{States: len(met)}
}

// Replay plays prefix and the named steps, and then completes the world. The names are separated by ", "; each is the
// text of a step that is possible by then. Replay returns the promise that is broken, or "".
func Replay[W, S any](w World[W, S], prefix []S, names string) (fault string) {
	x := w.play(prefix)
	for name := range strings.SplitSeq(names, ", ") {
		steps := w.Steps(x)
		i := slices.IndexFunc(steps, func(s S) bool { return fmt.Sprint(s) == name })
		if i < 0 {
			return "the step is not possible: " + name
		}
		w.Do(x, steps[i])
		if fault = w.Check(x); fault != "" {
			return fault
		}
	}
	return w.Complete(x)
}

func (w *World[W, S]) play(path []S) W {
	x := w.New()
	for _, s := range path {
		w.Do(x, s)
	}
	return x
}
