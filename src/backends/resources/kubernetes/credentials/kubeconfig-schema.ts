/** The supported fields of a kubeconfig: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/. */
import { Ajv } from 'ajv'
import { Type, type Static, type TSchema } from 'typebox'
import { faultsOf } from '../../../../domain/request-validation.ts'
import { placeOf, shown } from '../../../../domain/settings-file.ts'
import type { Entry } from './kubeconfig-files.ts'

/** kubectl writes null for what is not set, and an empty string for some of it. */
const orNull = <S extends TSchema>(schema: S) => Type.Optional(Type.Union([schema, Type.Null()]))
const TEXT = orNull(Type.String())
const texts = <Name extends string>(...names: Name[]) => Object.fromEntries(names.map((name) => [name, TEXT])) as Record<Name, typeof TEXT>
const FLAG = orNull(Type.Boolean())
const REQUIRED = Type.String({ minLength: 1 })

export const CONTEXT = Type.Object({ cluster: REQUIRED, ...texts('user', 'namespace') })

export const CLUSTER = Type.Object({
  server: REQUIRED,
  ...texts('certificate-authority', 'certificate-authority-data', 'tls-server-name', 'proxy-url'),
  'insecure-skip-tls-verify': FLAG,
  extensions: orNull(Type.Array(Type.Object({ name: Type.String(), extension: Type.Optional(Type.Unknown()) }))),
})

const EXEC = Type.Object({
  apiVersion: Type.Enum(['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1']),
  command: REQUIRED,
  args: orNull(Type.Array(Type.String())),
  env: orNull(Type.Array(Type.Object({ name: REQUIRED, value: TEXT }))),
  installHint: TEXT,
  // `Always` needs a terminal.
  interactiveMode: orNull(Type.Enum(['Never', 'IfAvailable'])),
  provideClusterInfo: FLAG,
})

export const USER = Type.Object({
  ...texts(
    'token',
    'tokenFile',
    'username',
    'password',
    'as',
    'client-certificate',
    'client-certificate-data',
    'client-key',
    'client-key-data',
  ),
  exec: orNull(EXEC),
  'auth-provider': orNull(Type.Unknown()),
})

export type Cluster = Static<typeof CLUSTER>
export type User = Static<typeof USER>
export type Exec = Static<typeof EXEC>

const schemas = new Ajv({ strict: false, meta: false, validateSchema: false })

/** The fields of an entry. Throws an Error of one sentence, without any value, on one of the wrong type; unknown fields are ignored, as by kubectl. */
export function readEntry<S extends TSchema>(schema: S, entry: Entry): Static<S> {
  const valid = schemas.compile<Static<S>>(schema)
  if (valid(entry.members)) return entry.members
  const [{ path, message } = { path: '', message: 'is not valid' }] = faultsOf(valid.errors ?? [])
  throw unusable(entry, `${shown(placeOf(path))} ${message}`)
}

/** The error that stops the start: the entry of the kubeconfig, and `why`, which must not contain a credential. */
export function unusable({ title }: Entry, why: string): Error {
  return new Error(`RESOURCES_URL: the ${title} cannot be used: ${why}.`)
}
