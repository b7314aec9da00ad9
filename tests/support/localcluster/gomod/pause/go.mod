module treadle.dev/localcluster/pause

go 1.25.0
