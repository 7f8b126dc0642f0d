// Package random has applications of random configuration on a broker, whose messages it counts: nothing is lost, early or
// out of order.
package random
