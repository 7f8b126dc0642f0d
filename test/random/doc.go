// Package random has TestRandomApplications: applications with random configurations on a broker. No message may be
// lost, early or out of order.
package random
