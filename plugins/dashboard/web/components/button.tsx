import type { ComponentProps } from 'preact'
import { Icon, type IconName } from './icon.tsx'

type Props = ComponentProps<'button'> & { text?: string; icon?: IconName; look?: string }

/** A button, with an icon before its text. `look`: words of `button.css`, such as `small quiet`. */
export function Button({ text, icon, look = '', children, ...rest }: Props) {
  return (
    <button type="button" class={`button ${look}`} {...rest}>
      {icon && <Icon name={icon} size={look.includes('small') ? 16 : 18} />}
      {text}
      {children}
    </button>
  )
}
