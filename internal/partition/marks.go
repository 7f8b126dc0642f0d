package partition

import "slices"

// marks are places in upstream's queue, as ids of messages that the broker sent. A loss empties the queue, so the marks
// in it are never reached, unless the lost connection was another partition's. So there is a mark for each epoch, and
// the application reaches one of them.
type marks struct {
	objects []any
	epoch   uint64 // of the last one
}

func (m *marks) add(object any, epoch uint64) {
	if m.epoch != epoch {
		m.objects, m.epoch = append(m.objects, object), epoch
	}
}

// reached reports whether a message that is read is one of the marks.
func (m *marks) reached(object any) bool { return slices.Contains(m.objects, object) }
