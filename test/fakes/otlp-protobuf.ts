/** Decodes traces of OTLP from protobuf, by the field numbers of opentelemetry-proto 1.x (`trace.proto`, `common.proto`, `resource.proto`). Independent of the libraries of the program. */

/** One span as it was exported. Ids are hex; `parent` is '' for the first of a trace. */
export type ExportedSpan = {
  traceId: string
  spanId: string
  parent: string
  traceState: string
  name: string
  kind: number
  attributes: Record<string, unknown>
  links: { traceId: string; spanId: string }[]
  /** 0 unset, 1 ok, 2 error. */
  status: number
  startNs: bigint
  endNs: bigint
  resource: Record<string, unknown>
}

type Field = { number: number; value: bigint | Buffer }

function* fieldsOf(bytes: Buffer): Generator<Field> {
  for (let at = 0; at < bytes.length; ) {
    const varint = (): bigint => {
      let value = 0n
      for (let shift = 0n; ; shift += 7n) {
        const byte = bytes[at++] ?? 0
        value |= BigInt(byte & 127) << shift
        if (byte < 128) return value
      }
    }
    const take = (length: number) => bytes.subarray(at, (at += length))
    const tag = Number(varint())
    const number = tag >> 3
    const type = tag & 7
    if (type === 0) yield { number, value: varint() }
    else if (type === 1) yield { number, value: take(8).readBigUInt64LE() }
    else if (type === 2) yield { number, value: take(Number(varint())) }
    else if (type === 5) yield { number, value: BigInt(take(4).readUInt32LE()) }
    else throw new Error(`wire type ${type} is not in these messages`)
  }
}

const all = (bytes: Buffer, number: number): Buffer[] => [...fieldsOf(bytes)].filter((field) => field.number === number).map(({ value }) => value as Buffer)
const one = (bytes: Buffer, number: number): Buffer => all(bytes, number)[0] ?? Buffer.alloc(0)
const whole = (bytes: Buffer, number: number): bigint => ([...fieldsOf(bytes)].find((field) => field.number === number)?.value as bigint | undefined) ?? 0n

function attributesOf(bytes: Buffer, number: number): Record<string, unknown> {
  return Object.fromEntries(all(bytes, number).map((pair) => [one(pair, 1).toString(), valueOf(one(pair, 2))]))
}

/** AnyValue: 1 string, 2 bool, 3 int, 4 double. */
function valueOf(bytes: Buffer): unknown {
  const [field] = fieldsOf(bytes)
  if (!field) return null
  if (field.number === 1) return String(field.value)
  if (field.number === 2) return field.value === 1n
  if (field.number === 3) return Number(BigInt.asIntN(64, field.value as bigint))
  return field.number === 4 ? Buffer.from(new BigUint64Array([field.value as bigint]).buffer).readDoubleLE() : field.value
}

/** The spans of an ExportTraceServiceRequest. */
export function decodeTraces(request: Buffer): ExportedSpan[] {
  return all(request, 1).flatMap((resourceSpans) => {
    const resource = attributesOf(one(resourceSpans, 1), 1)
    return all(resourceSpans, 2).flatMap((scope) => all(scope, 2)).map((span) => ({
      traceId: one(span, 1).toString('hex'),
      spanId: one(span, 2).toString('hex'),
      traceState: one(span, 3).toString(),
      parent: one(span, 4).toString('hex'),
      name: one(span, 5).toString(),
      kind: Number(whole(span, 6)),
      startNs: whole(span, 7),
      endNs: whole(span, 8),
      attributes: attributesOf(span, 9),
      links: all(span, 13).map((link) => ({ traceId: one(link, 1).toString('hex'), spanId: one(link, 2).toString('hex') })),
      status: Number(whole(one(span, 15), 3)),
      resource,
    }))
  })
}
