package ledger

// ring has settled entries in the order in which they were settled.
type ring struct {
	items []settledEntry // as many as a power of two
	first int
	n     int
}

type settledEntry struct {
	slot    uint32 // none if it was struck out
	settled uint64 // log.settled at its last acknowledgement
}

func (r *ring) push(e settledEntry) {
	if r.n == len(r.items) {
		items := make([]settledEntry, max(16, 2*r.n))
		for i := range r.n {
			items[i] = *r.at(i)
		}
		r.items, r.first = items, 0
	}
	r.n++
	*r.at(r.n - 1) = e
}

func (r *ring) at(i int) *settledEntry { return &r.items[(r.first+i)&(len(r.items)-1)] }

// pop takes the first entry out.
func (r *ring) pop() settledEntry {
	e := *r.at(0)
	r.first = (r.first + 1) & (len(r.items) - 1)
	if r.n--; r.n == 0 && len(r.items) > 4096 {
		r.items = nil
	}
	return e
}

// find returns what there is of an entry, which was settled of late or, where all comes again, is one of the oldest.
func (r *ring) find(slot uint32) *settledEntry {
	for i, j := 0, r.n-1; ; i, j = i+1, j-1 {
		if r.at(i).slot == slot {
			return r.at(i)
		}
		if r.at(j).slot == slot {
			return r.at(j)
		}
	}
}

// strike takes an entry out of the middle.
func (r *ring) strike(slot uint32) { r.find(slot).slot = none }

// trim takes out what was struck of the oldest.
func (r *ring) trim() {
	for r.n > 0 && r.at(0).slot == none {
		r.pop()
	}
}
