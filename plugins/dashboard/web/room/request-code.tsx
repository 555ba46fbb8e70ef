/** The request of the form as a program sends it: curl, JavaScript, Python and a call of the MCP tool. */
import { useState } from 'preact/hooks'
import { listKeys } from '../api/keys.ts'
import { session } from '../api/session.ts'
import { Button } from '../components/button.tsx'
import { Code } from '../components/copy.tsx'
import { Dialog } from '../components/dialog.tsx'
import { Segmented } from '../components/field.tsx'
import { useLoad } from '../components/load.tsx'
import { variableOf } from '../key-variable.ts'
import type { Body } from './media-api.ts'
import { LANGUAGES, requestIn, type Language } from './request-languages.ts'
import { useRoom } from './room-state.ts'

/** `body` is null while the form is not complete. */
export function RequestCode({ body }: { body: Body | null }) {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <Button text="Code" icon="code" look="quiet show-code" disabled={body === null} onClick={() => setOpen(true)} />
      {isOpen && body && <CodeDialog body={body} close={() => setOpen(false)} />}
    </>
  )
}

function CodeDialog({ body, close }: { body: Body; close: () => void }) {
  const { plan } = useRoom()
  const [language, setLanguage] = useState<Language>('curl')
  const keys = useLoad(listKeys, []).value.value.data?.data ?? []
  const key = keys.find((each) => each.plan === plan && each.state === 'Active')?.name ?? null
  const variable = variableOf('media', session.value?.brand ?? '')
  return (
    <Dialog title="This request as code" close={close} wide>
      <Segmented label="Language" value={language} choices={LANGUAGES} choose={(value) => setLanguage(value as Language)} />
      <p>
        Set <code>{variable}</code> to{' '}
        {key === null ? (
          'a key of this plan'
        ) : (
          <>
            the key <strong>{key}</strong>
          </>
        )}
        , which is under API Keys.
      </p>
      <Code
        title={LANGUAGES.find(({ value }) => value === language)?.name ?? ''}
        text={requestIn(language, body, { address: session.value?.public_url ?? location.origin, variable, key })}
      />
    </Dialog>
  )
}
