#[automatically_derived]
impl<'a> ::outbox::__private::OutboxEvent for OrderPaid<'a> {
    const TYPES: ::outbox::__private::TypeSet = ::outbox::__private::TypeSet::One(const {
        &::outbox::__private::EventMeta::new(
            "order.paid",
            4u32,
            "order",
            ::outbox::__private::Option::None,
            const { &[] },
            ::outbox::__private::concat!(
                ::outbox::__private::module_path!(), "::OrderPaid"
            ),
        )
    });
    fn meta(&self) -> &'static ::outbox::__private::EventMeta {
        match self {
            Self { .. } => {
                const {
                    &::outbox::__private::EventMeta::new(
                        "order.paid",
                        4u32,
                        "order",
                        ::outbox::__private::Option::None,
                        const { &[] },
                        ::outbox::__private::concat!(
                            ::outbox::__private::module_path!(), "::OrderPaid"
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
            Self { order: __order, .. } => {
                ::outbox::__private::Option::Some(
                    ::outbox::__private::Cow::Owned(
                        ::outbox::__private::Text::text(__order),
                    ),
                )
            }
        }
    }
    fn key(&self) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        match self {
            Self { order: __order, .. } => {
                ::outbox::__private::Option::Some(
                    ::outbox::__private::Cow::Owned(
                        ::outbox::__private::Text::text(__order),
                    ),
                )
            }
        }
    }
    fn headers(
        &self,
        headers: &mut ::outbox::__private::Headers,
    ) -> ::outbox::__private::OutboxResult<()> {
        match self {
            Self { order: __order, .. } => {
                ::outbox::__private::Headers::insert(
                    headers,
                    "order",
                    ::outbox::__private::Text::text(__order),
                )?;
            }
        }
        ::outbox::__private::Result::Ok(())
    }
    fn encode(
        &self,
        codec: &dyn ::outbox::__private::Codec,
    ) -> ::outbox::__private::OutboxResult<::outbox::__private::Vec<u8>> {
        ::outbox::__private::encode(self, codec)
    }
}
#[automatically_derived]
#[allow(redundant_lifetimes, reason = "what is received owns its data")]
impl<'a> ::outbox::__private::DecodeEvent for OrderPaid<'a>
where
    for<'__de> Self: ::outbox::__private::Readable<'__de>,
{
    fn decode(
        message: &::outbox::__private::Message,
        codecs: &::outbox::__private::Codecs,
    ) -> ::outbox::__private::OutboxResult<Self> {
        ::outbox::__private::known::<Self>(message)?;
        let event: Self = match message.version {
            0..2u32 => {
                return ::outbox::__private::Result::Err(
                    ::outbox::__private::too_old(message, 2u32),
                );
            }
            2u32 => {
                <Self as ::outbox::__private::Upcast<
                    OrderPaidV3,
                >>::upcast(
                    <OrderPaidV3 as ::outbox::__private::Upcast<
                        OrderPaidV2,
                    >>::upcast(
                        <OrderPaidV2 as ::outbox::__private::Shape>::read(
                            message,
                            codecs,
                        )?,
                    ),
                )
            }
            3u32 => {
                <Self as ::outbox::__private::Upcast<
                    OrderPaidV3,
                >>::upcast(
                    <OrderPaidV3 as ::outbox::__private::Shape>::read(message, codecs)?,
                )
            }
            _ => <Self as ::outbox::__private::Shape>::read(message, codecs)?,
        };
        ::outbox::__private::agreeing(event, message)
    }
}
::outbox::__private::inventory::submit! {
    ::outbox::__private::EventEntry::new(< OrderPaid < 'static > as
    ::outbox::__private::OutboxEvent > ::TYPES)
}
