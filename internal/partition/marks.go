package partition

import "slices"

// marks are places in upstream's queue: the first message that the broker sent in each of some epochs. A loss empties
// the queue, or it was another partition's and does not. So the application may reach all of them, or only the newest.
type marks []mark

type mark struct {
	object any // id of the message
	epoch  uint64
}

// add adds a message, unless there is a mark of its epoch.
func (m *marks) add(object any, epoch uint64) {
	if n := len(*m); n == 0 || (*m)[n-1].epoch != epoch {
		*m = append(*m, mark{object, epoch})
	}
}

// reach returns the epoch of the mark that a message is, and drops the marks up to it; ok is false if it is none.
func (m *marks) reach(object any) (epoch uint64, ok bool) {
	at := slices.IndexFunc(*m, func(x mark) bool { return x.object == object })
	if at < 0 {
		return 0, false
	}
	epoch = (*m)[at].epoch
	*m = (*m)[at+1:]
	return epoch, true
}
