# The service alone; PostgreSQL and RocketMQ are other containers (docker-compose.yml).
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/txsvc/txsvc/internal/app.release=${VERSION}" -o /out/txsvc ./cmd/txsvc

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/txsvc /usr/local/bin/txsvc
USER nonroot
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/txsvc"]
CMD ["serve"]
