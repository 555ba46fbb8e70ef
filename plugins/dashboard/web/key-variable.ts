/** The name under which programs are given a key: with the brand of the service. */
import { session } from './api/session.ts'

/** The environment variable of a key of an API. Those of both APIs can be set beside each other. */
export function variableOf(api: 'media' | 'coding', brand = session.value?.brand ?? 'SVC'): string {
  return `${brand.toUpperCase()}_${api === 'coding' ? 'CODING' : 'MEDIA'}_API_KEY`
}
