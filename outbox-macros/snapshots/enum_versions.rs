#[automatically_derived]
impl ::outbox::__private::OutboxEvent for OrderEvent {
    const TYPES: ::outbox::__private::TypeSet = ::outbox::__private::TypeSet::Any(const {
        ::outbox::__private::disjoint(
            &[
                ::outbox::__private::TypeSet::One(const {
                    &::outbox::__private::EventMeta::new(
                        "order.placed",
                        2u32,
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
                        "order.closed",
                        1u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &[] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(), "::OrderEvent::Closed"
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
                        2u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &[] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(), "::OrderEvent::Placed"
                        ),
                    )
                }
            }
            Self::Closed { .. } => {
                const {
                    &::outbox::__private::EventMeta::new(
                        "order.closed",
                        1u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &[] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(), "::OrderEvent::Closed"
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
            Self::Placed { .. } => ::outbox::__private::Option::None,
            Self::Closed { .. } => ::outbox::__private::Option::None,
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
        ::outbox::__private::known::<Self>(message)?;
        let event: Self = if ::outbox::__private::EventMeta::answers_to(
            const {
                &::outbox::__private::EventMeta::new(
                    "order.placed",
                    2u32,
                    "order",
                    ::outbox::__private::Option::None,
                    const { &[] },
                    ::outbox::__private::concat!(
                        ::outbox::__private::module_path!(), "::OrderEvent::Placed"
                    ),
                )
            },
            &message.event_type,
        ) {
            match message.version {
                1u32 => {
                    <Self as ::outbox::__private::Upcast<
                        OrderEventV1,
                    >>::upcast(
                        <OrderEventV1 as ::outbox::__private::Shape>::read(
                            message,
                            codecs,
                        )?,
                    )
                }
                _ => <Self as ::outbox::__private::Shape>::read(message, codecs)?,
            }
        } else {
            <Self as ::outbox::__private::Shape>::read(message, codecs)?
        };
        ::outbox::__private::agreeing(event, message)
    }
}
::outbox::__private::inventory::submit! {
    ::outbox::__private::EventEntry::new(< OrderEvent as ::outbox::__private::OutboxEvent
    > ::TYPES)
}
