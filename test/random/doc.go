// Package random has TestRandomApplications: applications of random configuration on a broker. No message may be lost,
// early or out of order.
package random
