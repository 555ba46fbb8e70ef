/** How to use a key: a configuration for each client, with this address and, once revealed, the key itself. */
import { useEffect, useState } from 'preact/hooks'
import type { Key } from '../../api/keys.ts'
import { session } from '../../api/session.ts'
import { Card } from '../../components/card.tsx'
import { Code } from '../../components/copy.tsx'
import { Segmented, SelectField } from '../../components/field.tsx'
import { Notice } from '../../components/states.tsx'
import { revealed } from './revealed.ts'
import { CLIENTS, partsFor } from './snippets.ts'

const apiOf = ({ product }: Key): 'coding' | 'media' => (product === 'Coding' ? 'coding' : 'media')
const APIS = [
  { value: 'coding', name: 'Coding Plan API' },
  { value: 'media', name: 'Media API' },
] as const

export function Clients({ keys }: { keys: Key[] }) {
  // The browser looks for the fragment before the keys are there.
  useEffect(() => void (location.hash === '#clients' && document.querySelector('.clients')?.scrollIntoView()), [])
  const usable = keys.filter(({ state }) => state === 'Active')
  const [api, setApi] = useState<'coding' | 'media' | null>(null)
  const [clientId, setClientId] = useState('')
  const [keyName, setKeyName] = useState('')
  // A key that was revealed is the one to use.
  const latest = [...revealed.value.keys()].at(-1)
  useEffect(() => {
    const key = usable.find(({ name }) => name === latest)
    if (!key) return
    setApi(apiOf(key))
    setKeyName(key.name)
  }, [latest])
  const offered = APIS.filter(({ value }) => usable.some((key) => apiOf(key) === value))
  const chosenApi = offered.find(({ value }) => value === api)?.value ?? offered[0]?.value
  if (!chosenApi) return null
  const clients = CLIENTS.filter((each) => each.api === chosenApi)
  const fitting = usable.filter((each) => apiOf(each) === chosenApi)
  const client = clients.find(({ id }) => id === clientId) ?? clients[0]
  const key = fitting.find(({ name }) => name === keyName) ?? fitting[0]
  if (!client || !key) return null
  const secret = revealed.value.get(key.name)?.secret ?? null
  return (
    <Card
      title="Use a key"
      hint="Paste this into your client. It has the address of this service."
      class="clients"
      actions={
        offered.length > 1 && (
          <Segmented
            label="API"
            value={chosenApi}
            choices={[...offered]}
            choose={(value) => setApi(value === 'media' ? 'media' : 'coding')}
          />
        )
      }
    >
      <div class="grid">
        <SelectField label="Client" value={client.id} choices={clients.map(({ id, name }) => ({ value: id, name }))} choose={setClientId} />
        <SelectField label="Key" value={key.name} choices={fitting.map(({ name }) => ({ value: name, name }))} choose={setKeyName} />
      </div>
      {!secret && <Notice>Reveal {key.name} above, and its key is filled in here.</Notice>}
      <div class="stack">
        {partsFor(client, session.value?.public_url ?? location.origin, session.value?.brand ?? '', secret).map(({ title, text }, at) => (
          <Code key={`${client.id}${at}`} title={title} text={text} />
        ))}
      </div>
    </Card>
  )
}
