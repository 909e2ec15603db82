package outage

import "time"

var atTest = time.Now()
