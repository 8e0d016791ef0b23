// The user's initial or picture as a button that opens a menu with the name and "Sign out". It renders
// nothing for a user who is signed out. The inline styles are a starting point; style it further through
// `className` and the classes of its parts.
'use client';

import type { User } from '@townhall/gateway';
import {
  type ComponentPropsWithoutRef,
  createElement,
  type CSSProperties,
  type KeyboardEvent,
  type ReactElement,
  type ReactNode,
  useEffect,
  useRef,
  useState,
} from 'react';
import { useUser } from './context.ts';

export interface UserButtonProps extends Omit<
  ComponentPropsWithoutRef<'details'>,
  'children' | 'onToggle' | 'onKeyDown'
> {
  /** Shown in the menu above "Sign out", such as links to the user's pages. */
  children?: ReactNode;
}

/** Where the menu is aligned with the button. */
type Side = 'start' | 'end';

export function UserButton({ children, style, ...rest }: UserButtonProps): ReactElement | null {
  const { user, signOut } = useUser();
  const { menu, side } = useMenu();
  if (user === null) return null;
  const name = user.display_name ?? user.email ?? 'User';
  const detail = user.display_name !== null && user.email !== null ? user.email : undefined;
  return createElement(
    'details',
    { ...rest, ...menu, style: { position: 'relative', display: 'inline-block', ...style } },
    createElement(
      'summary',
      { className: 'townhall-avatar', 'aria-label': `Account of ${name}`, style: avatarStyle },
      picture(user, name),
    ),
    createElement(
      'div',
      { className: 'townhall-menu', style: side === 'end' ? endMenuStyle : menuStyle },
      createElement('strong', { className: 'townhall-name', style: textStyle }, name),
      detail === undefined
        ? null
        : createElement('span', { className: 'townhall-email', style: textStyle }, detail),
      children,
      createElement(
        'button',
        {
          type: 'button',
          className: 'townhall-sign-out',
          style: buttonStyle,
          onClick: () => void signOut(),
        },
        'Sign out',
      ),
    ),
  );
}

/** The menu opens towards the middle of the page, and closes with Escape and with a click elsewhere. */
function useMenu() {
  const ref = useRef<HTMLDetailsElement>(null);
  const [side, setSide] = useState<Side>('start');
  const [isOpen, setIsOpen] = useState(false);

  useEffect(() => {
    if (!isOpen) return undefined;
    const closeOutside = ({ target }: Event) => {
      const menu = ref.current;
      if (menu !== null && target instanceof Node && !menu.contains(target)) menu.open = false;
    };
    document.addEventListener('pointerdown', closeOutside);
    return () => document.removeEventListener('pointerdown', closeOutside);
  }, [isOpen]);

  function onToggle(): void {
    const menu = ref.current;
    if (menu === null) return;
    const { left, right } = menu.getBoundingClientRect();
    const isLeftOfMiddle = (left + right) / 2 < document.documentElement.clientWidth / 2;
    const isLeftToRight = getComputedStyle(menu).direction === 'ltr';
    setSide(isLeftOfMiddle === isLeftToRight ? 'start' : 'end');
    setIsOpen(menu.open);
  }

  function onKeyDown({ key }: KeyboardEvent): void {
    const menu = ref.current;
    if (key !== 'Escape' || menu === null || !menu.open) return;
    menu.open = false;
    menu.querySelector('summary')?.focus();
  }

  return { menu: { ref, onToggle, onKeyDown }, side };
}

function picture({ avatar_url: url }: User, name: string): ReactNode {
  if (url === null) return ([...name][0] ?? '?').toUpperCase();
  return createElement('img', { src: url, alt: '', referrerPolicy: 'no-referrer', style: pictureStyle });
}

// System colours follow the page's colour scheme.
const avatarStyle: CSSProperties = {
  display: 'grid',
  placeItems: 'center',
  inlineSize: '2.5rem',
  blockSize: '2.5rem',
  borderRadius: '50%',
  background: 'CanvasText',
  color: 'Canvas',
  fontWeight: 600,
  listStyle: 'none',
  cursor: 'pointer',
  overflow: 'hidden',
};
const pictureStyle: CSSProperties = { inlineSize: '100%', blockSize: '100%', objectFit: 'cover' };
const menuStyle: CSSProperties = {
  position: 'absolute',
  insetInlineStart: 0,
  zIndex: 10,
  display: 'grid',
  gap: '.25rem',
  minInlineSize: '13rem',
  maxInlineSize: '80vw',
  marginBlockStart: '.5rem',
  padding: '1rem',
  border: '1px solid color-mix(in srgb, CanvasText 20%, Canvas)',
  borderRadius: '12px',
  background: 'Canvas',
  color: 'CanvasText',
  boxShadow: '0 12px 32px -12px rgb(0 0 0 / 35%)',
};
const endMenuStyle: CSSProperties = { ...menuStyle, insetInlineStart: 'auto', insetInlineEnd: 0 };
const textStyle: CSSProperties = { overflowWrap: 'anywhere' };
const buttonStyle: CSSProperties = {
  marginBlockStart: '.75rem',
  padding: '.5rem .75rem',
  border: '1px solid color-mix(in srgb, CanvasText 30%, Canvas)',
  borderRadius: '8px',
  background: 'none',
  color: 'inherit',
  font: 'inherit',
  cursor: 'pointer',
};
