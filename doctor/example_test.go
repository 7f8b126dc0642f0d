package doctor_test

import (
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/doctor"
)

func ExampleExamineOptions() {
	for _, f := range doctor.ExamineOptions(doctor.Setup{
		Topic:           "orders",
		Subscription:    "billing",
		Type:            "Shared",
		Policy:          doctor.Policy{Nack: backoff.Exponential{Min: time.Minute, Max: time.Minute}, MaxDeliveries: 5},
		DeadLetterTopic: "orders-billing-DLQ",
	}) {
		fmt.Println(f.Status, f.Check+":", f.Found)
	}
	// Output:
	// warning policy-range: delays of nacks are 1m0s to 1m0s
	// warning dead-letters-read: dead letters without InitialSubscriptionName: the broker deletes them if their topic has no subscription
}

func ExampleWorst() {
	findings := []doctor.Finding{{Check: "version", Status: doctor.OK}, {Check: "tick", Status: doctor.Warning}}
	fmt.Println(doctor.Worst(findings), doctor.Worst(findings) < doctor.Problem)
	// Output: warning true
}
