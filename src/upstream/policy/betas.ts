/**
 * The names in `anthropic-beta` that a Messages upstream gets: those that change how a model is asked. Others choose a price (`fast-mode`, `context-1m`), read
 * storage or run something at the server; an upstream gets them where its `allow` says `beta:<name>`.
 */
import type { RequestPolicy } from './request-policy.ts'

const PASSED =
  /^(?:claude-code|interleaved-thinking|thinking-[a-z-]+|redact-thinking|context-management|context-hint|extended-cache-ttl|prompt-caching[a-z-]*|fine-grained-tool-streaming|token-efficient-tools|output-128k|effort|structured-outputs|advanced-tool-use|computer-use|mid-conversation-[a-z-]+|per-turn-control|timing|inline-tools|model-context-window-exceeded|task-budgets)-\d{4}-?\d{2}-?\d{2}$/
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/
const MAX_NAMES = 50

/** The names in a client's header. */
export function betaNames(header: string | string[] | undefined): string[] {
  const names = String(header ?? '').split(',', MAX_NAMES)
  return [...new Set(names.map((name) => name.trim()))].filter((name) => NAME.test(name))
}

/** The value of the header for an upstream; '' for none. */
export function sentBetas(names: readonly string[], { allow, drop }: RequestPolicy): string {
  return names.filter((name) => !drop.has(`beta:${name}`) && (PASSED.test(name) || allow.has(`beta:${name}`))).join(',')
}
