package clock

import "time"

// Keys are timers that keys identify, each set to a point in time. The zero value has no timers.
type Keys[K comparable] struct {
	clock  Clock[K]
	timers map[K]*Timer[K]
	start  time.Time // of the clock
}

// Set makes a key go off at the given time. If the key is set, its time changes.
func (k *Keys[K]) Set(key K, at time.Time) {
	if k.timers == nil {
		k.timers, k.start = map[K]*Timer[K]{}, at
		if at.IsZero() { // the time from there to now does not fit a Duration
			k.start = time.Now()
		}
	}
	t := k.timers[key]
	if t == nil {
		t = &Timer[K]{Of: key}
		k.timers[key] = t
	}
	k.clock.Set(t, at.Sub(k.start))
}

// Stop forgets a key and reports whether it was set.
func (k *Keys[K]) Stop(key K) bool {
	t := k.timers[key]
	if t == nil {
		return false
	}
	k.clock.Stop(t)
	delete(k.timers, key)
	return true
}

// At returns when a key goes off; ok is false if it is not set.
func (k *Keys[K]) At(key K) (at time.Time, ok bool) {
	t := k.timers[key]
	if t == nil {
		return time.Time{}, false
	}
	return k.start.Add(t.At()), true
}

// Due returns the keys that go off at now or before, in order of time, and forgets them.
func (k *Keys[K]) Due(now time.Time) (due []K) {
	for t := k.clock.Pop(now.Sub(k.start)); t != nil; t = k.clock.Pop(now.Sub(k.start)) {
		delete(k.timers, t.Of)
		due = append(due, t.Of)
	}
	return due
}

// Next returns when the next key goes off; ok is false if there is none.
func (k *Keys[K]) Next() (at time.Time, ok bool) {
	d, ok := k.clock.Next()
	if !ok {
		return time.Time{}, false
	}
	return k.start.Add(d), true
}

// Len returns how many keys are set.
func (k *Keys[K]) Len() int { return len(k.timers) }
