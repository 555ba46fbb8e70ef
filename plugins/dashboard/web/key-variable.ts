/** The environment variable of a key of an API: with the brand of the service, and those of both APIs can be set beside each other. */
export function variableOf(api: 'media' | 'coding', brand: string): string {
  return `${brand.toUpperCase()}_${api === 'coding' ? 'CODING' : 'MEDIA'}_API_KEY`
}
