/** The banner after a start: addresses, key files, and one request of each product to paste. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { embeddedPaths } from '../config/config.ts'
import { apiOf, type Api } from '../domain/plans.ts'
import type { Resources } from '../backends/resources/resources.ts'

const KEYS_SHOWN_MAX = 10

const PASTE: Record<Api, { path: string; body: string }> = {
  coding: { path: '/v1/chat/completions', body: '{"model":"svc-code","messages":[{"role":"user","content":"Hello"}]}' },
  media: { path: '/api/v1/generations', body: '{"kind":"image","prompt":"A lighthouse at dawn"}' },
}

/** `url` is the public listener, null for a role without one; `publicUrl` is how clients reach it. `signInLink` is the one-time link of the dashboard's mode `local`. */
export type Addresses = { url: string | null; publicUrl: string; opsUrl: string; signInLink: string | null }

/** The banner as text for a terminal and as fields for the log. Lists keys whose Secret this process wrote: a key without an active plan has none. */
export function banner(
  { url, publicUrl, opsUrl, signInLink }: Addresses,
  resources: Resources | null,
  dataDir: string,
): { text: string; facts: Record<string, unknown> } {
  const keys = resources === null ? [] : keysOf(resources, dataDir)
  const curls = (['coding', 'media'] as const).flatMap((api) => {
    const key = url === null ? undefined : keys.find((candidate) => candidate.api === api)
    return key
      ? [
          `curl ${publicUrl}${PASTE[api].path} -H "Authorization: Bearer $(cat '${key.file}')" -H 'Content-Type: application/json' -d '${PASTE[api].body}'`,
        ]
      : []
  })
  const text = [
    url === null ? `Tollgate runs, operations ${opsUrl}` : `Tollgate serves ${publicUrl}, operations ${opsUrl}`,
    ...(signInLink === null ? [] : [`Dashboard, with a link that works once: ${signInLink}`]),
    ...keys.map(({ name, file }) => `Key ${name}: ${file}`),
    ...(curls.length > 0 ? ['Try it:', ...curls.map((line) => `  ${line}`)] : []),
  ].join('\n')
  const served = url === null ? {} : { url, publicUrl, ...(signInLink === null ? {} : { signInLink }), try: curls }
  return { text, facts: { ...served, opsUrl, keys: keys.map(({ name, file }) => ({ name, file })) } }
}

function keysOf(resources: Resources, dataDir: string): { name: string; api: Api | null; file: string }[] {
  return resources
    .list('ApiKey')
    .values()
    .filter(({ spec }) => spec.secretName !== undefined)
    .map((key) => {
      const plan = resources.get({ kind: 'Plan', namespace: key.metadata.namespace, name: key.spec.planRef.name })
      const api = plan?.kind === 'Plan' ? apiOf(plan.spec.product) : null
      const file = join(embeddedPaths(dataDir).secrets, key.metadata.namespace, key.spec.secretName ?? '', 'api-key')
      return { name: `${key.metadata.namespace}/${key.metadata.name}`, api, file }
    })
    .filter(({ file }) => existsSync(file))
    .take(KEYS_SHOWN_MAX)
    .toArray()
}
