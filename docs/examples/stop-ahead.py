import http.client, json, socket, sys

class Station(http.client.HTTPConnection):          # HTTP over the station's UNIX socket
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.host)

station = Station(sys.argv[1])                      # /run/carnet/lorry-3.sock
station.request("GET", "/v1/messages?type=denm&cause=stationary_vehicle,accident")
for line in station.getresponse():                  # a text/event-stream: lines "data: {JSON}"
    if not line.startswith(b"data:"):
        continue
    event = json.loads(line[5:])
    if event["type"] != "denm":
        continue
    where = event["message"]["management_container"]["event_position"]
    if "termination" in event["message"]["management_container"]:
        print("the road is free again", flush=True)
    else:
        print(f"STOP AHEAD at {where['latitude'] / 1e7:.4f}, {where['longitude'] / 1e7:.4f}", flush=True)
