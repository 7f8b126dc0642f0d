package doctor

import "fmt"

var version = Check{
	Name: "version", About: "Connection", Needs: AdminAPI,
	Asks: "Is the broker Pulsar 3.0 or later, and 4.0 or later for Key_Shared?",
	Why: "this library is tested with Pulsar 3.0, 4.0 and 4.2. Before 4.0 a Key_Shared key may move while a " +
		"consumer still has messages of it",
	Remedy: "upgrade the brokers to Pulsar 4.0",
	look: func(v *visit) verdict {
		said, major, minor := "", 0, 0
		if err := v.get("brokers/version", &said); err != nil {
			return unknown(err)
		}
		if _, err := fmt.Sscanf(said, "%d.%d", &major, &minor); err != nil {
			return verdict{Unknown, fmt.Sprintf("the version is %q", said)}
		}
		return judge(major > 3 || major == 3 && v.typeOf() != "Key_Shared", Warning, "Pulsar %s", said)
	},
}
