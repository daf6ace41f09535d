/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef HIGHWIRE_WAKE_CHANNELS_H
#define HIGHWIRE_WAKE_CHANNELS_H

/* Begins to serve completion channels, if the module's parameter asks for it. EINVAL: too long a poll. ENOENT: no ib_uverbs here. */
int channels_begin(void);
void channels_end(void);

#endif
