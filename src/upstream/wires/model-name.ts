/** The name of the one model that clients know. */
export const MODEL = 'svc-code'
