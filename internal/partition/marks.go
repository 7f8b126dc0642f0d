package partition

import "slices"

// marks are places in upstream's queue. Each mark is the id of a message that the broker sent. If the partition loses
// its connection, upstream empties the queue, and the application never reaches the marks in it. If another partition
// loses its connection, the application reaches the marks. So there is a mark for each epoch, and the application
// reaches one of them.
type marks struct {
	objects []any
	epoch   uint64 // of the last one
}

func (m *marks) add(object any, epoch uint64) {
	if m.epoch != epoch {
		m.objects, m.epoch = append(m.objects, object), epoch
	}
}

// reached reports whether a message that is being read is one of the marks.
func (m *marks) reached(object any) bool { return slices.Contains(m.objects, object) }
