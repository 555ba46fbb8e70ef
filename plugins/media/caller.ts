/** The caller of a route behind a key. */
import type { FastifyRequest } from 'fastify'
import { Failure } from '../../src/domain/errors.ts'
import type { Submitter } from '../../src/tasks/submit.ts'

export const READS = { api: 'media', problem: true } as const
export const CREATES = { ...READS, creates: true, proves: true } as const

export function callerOf({ caller }: FastifyRequest): Submitter & { countRead(): void } {
  if (!caller) throw new Failure('invalid_api_key')
  return caller
}
