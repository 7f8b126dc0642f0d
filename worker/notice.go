package worker

import "sync"

// notice tells of a condition when it begins and when it ends. However long those take who are told, what they are told last is so.
type notice struct {
	told    bool // that the condition is there
	telling bool // by some goroutine
}

// tell tells whether the condition is there, if that changed. is and how are called with mu held, which the caller does not hold; what how
// returns is called without it.
func (n *notice) tell(mu *sync.Mutex, is func() bool, how func(is bool) (tell func())) {
	mu.Lock()
	defer mu.Unlock()
	for n.told != is() && !n.telling {
		n.told, n.telling = !n.told, true
		report := how(n.told)
		mu.Unlock()
		report()
		mu.Lock()
		n.telling = false
	}
}
