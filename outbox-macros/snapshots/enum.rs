#[automatically_derived]
impl ::outbox::__private::OutboxEvent for OrderEvent {
    const TYPES: ::outbox::__private::TypeSet = ::outbox::__private::TypeSet::Any(const {
        ::outbox::__private::disjoint(
            &[
                ::outbox::__private::TypeSet::One(const {
                    &::outbox::__private::EventMeta::new(
                        "order.placed",
                        1u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &[] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(), "::OrderEvent::Placed"
                        ),
                    )
                }),
                ::outbox::__private::TypeSet::One(const {
                    &::outbox::__private::EventMeta::new(
                        "order.day_closed",
                        2u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &[] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(),
                            "::OrderEvent::DayClosed"
                        ),
                    )
                }),
            ],
        )
    });
    fn meta(&self) -> &'static ::outbox::__private::EventMeta {
        match self {
            Self::Placed { .. } => {
                const {
                    &::outbox::__private::EventMeta::new(
                        "order.placed",
                        1u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &[] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(), "::OrderEvent::Placed"
                        ),
                    )
                }
            }
            Self::DayClosed { .. } => {
                const {
                    &::outbox::__private::EventMeta::new(
                        "order.day_closed",
                        2u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &[] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(),
                            "::OrderEvent::DayClosed"
                        ),
                    )
                }
            }
        }
    }
    fn aggregate_id(
        &self,
    ) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        match self {
            Self::Placed { order_id: __order_id, .. } => {
                ::outbox::__private::Option::Some(
                    ::outbox::__private::Cow::Owned(
                        ::outbox::__private::Text::text(__order_id),
                    ),
                )
            }
            Self::DayClosed { .. } => ::outbox::__private::Option::None,
        }
    }
    fn key(&self) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        match self {
            Self::Placed { .. } => ::outbox::__private::Option::None,
            Self::DayClosed { 0: __0, .. } => {
                ::outbox::__private::Option::Some(
                    ::outbox::__private::Cow::Owned(::outbox::__private::Text::text(__0)),
                )
            }
        }
    }
    fn encode(
        &self,
        codec: &dyn ::outbox::__private::Codec,
    ) -> ::outbox::__private::OutboxResult<::outbox::__private::Vec<u8>> {
        ::outbox::__private::encode(self, codec)
    }
}
#[automatically_derived]
impl ::outbox::__private::DecodeEvent for OrderEvent
where
    for<'__de> Self: ::outbox::__private::Readable<'__de>,
{
    fn decode(
        message: &::outbox::__private::Message,
        codecs: &::outbox::__private::Codecs,
    ) -> ::outbox::__private::OutboxResult<Self> {
        ::outbox::__private::read(message, codecs)
    }
}
::outbox::__private::inventory::submit! {
    ::outbox::__private::EventEntry::new(< OrderEvent as ::outbox::__private::OutboxEvent
    > ::TYPES)
}
